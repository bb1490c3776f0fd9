"""Resize and Upsample of every operator set -> ``image.resize2d`` (4-D) on the two spatial axes."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from torq_byoc.frontend.converters.support import Converter, OnnxCall, static_shape
from torq_byoc.frontend.geometry import normalize_axis

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}


def resize(call: OnnxCall) -> relax.Expr:
    """Resize -> ``image.resize2d``; the rounding and coordinate modes keep their ONNX names."""
    if call.opset <= 10:
        return _legacy(call, call.constant(1))
    if int(call.attrs.get("antialias", 0)) or call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise call.unsupported("antialias and keep_aspect_ratio_policy have no Relax form")
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    if coordinates == "half_pixel_symmetric":
        raise call.unsupported("coordinate mode half_pixel_symmetric has no Relax form")
    roi = call.constant(1) if coordinates == "tf_crop_and_resize" else None
    return _resize2d(
        call,
        _output_shape(call),
        coordinates,
        call.text("nearest_mode", "round_prefer_floor"),
        roi,
    )


def upsample(call: OnnxCall) -> relax.Expr:
    """Upsample -> ``image.resize2d`` with asymmetric coordinates, rounded down."""
    return _legacy(call, call.constant(1, "scales"))


def _legacy(call: OnnxCall, scales: np.ndarray | None) -> relax.Expr:
    if scales is None:
        raise call.unsupported("it names no scales")
    shape = static_shape(call.data(), call)
    sizes = tuple(math.floor(n * float(s)) for n, s in zip(shape, scales.reshape(-1), strict=True))
    return _resize2d(call, sizes, "asymmetric", "floor", None)


def _output_shape(call: OnnxCall) -> tuple[int, ...]:
    shape = static_shape(call.data(), call)
    axes = [normalize_axis(int(a), len(shape), call.name) for a in call.attrs.get("axes", range(len(shape)))]
    scales, sizes = call.constant(2), call.constant(3)
    result = list(shape)
    if sizes is not None and sizes.size:
        for axis, size in zip(axes, sizes.reshape(-1), strict=True):
            result[axis] = int(size)
    elif scales is not None and scales.size:
        for axis, scale in zip(axes, scales.reshape(-1), strict=True):
            result[axis] = math.floor(shape[axis] * float(scale))
    else:
        raise call.unsupported("it names neither scales nor sizes")
    return tuple(result)


def _resize2d(
    call: OnnxCall, sizes: tuple[int, ...], coordinates: str, rounding: str, roi: np.ndarray | None
) -> relax.Expr:
    x = call.data()
    shape = static_shape(x, call)
    if len(shape) != 4 or sizes[:2] != shape[:2]:
        raise call.unsupported(f"it resizes {list(shape)} to {list(sizes)}; only the last two of four axes can change")
    mode = call.text("mode", "nearest")
    if mode not in _METHODS:
        raise call.unsupported(f"mode {mode!r} is none of {sorted(_METHODS)}")
    region = [0.0] * 4 if roi is None or roi.size != 8 else [float(roi[i]) for i in (2, 3, 6, 7)]
    return relax.op.image.resize2d(
        x,
        size=relax.ShapeExpr(sizes[2:]),
        roi=region,
        layout="NCHW",
        method=_METHODS[mode],
        coordinate_transformation_mode=coordinates,
        rounding_method=rounding,
        cubic_alpha=float(call.attrs.get("cubic_coeff_a", -0.75)),
        cubic_exclude=int(call.attrs.get("exclude_outside", 0)),
        extrapolation_value=float(call.attrs.get("extrapolation_value", 0.0)),
    )


CONVERTERS: dict[str, Converter] = {"Resize": resize, "Upsample": upsample}
