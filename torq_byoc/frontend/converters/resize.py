"""Resize and Upsample of every operator set.

What ``image.resize2d`` computes as ONNX defines it becomes that op, on the two spatial axes of four.  Every other
form (other axes or ranks, sizes that the scales do not divide, antialiasing, cropping) is resampled axis by axis:
``take`` for the nearest element, otherwise ``matmul`` with a constant matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from torq_byoc.frontend.converters.interpolation import COORDINATES, ROUNDINGS, Resampling
from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant, dtype_of, static_shape
from torq_byoc.frontend.geometry import normalize_axis

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}


def resize(call: OnnxCall) -> relax.Expr:
    """Resize -> ``image.resize2d``, or one product for each axis."""
    if call.opset <= 10:
        return _legacy(call, call.constant(1))
    axes = _axes(call)
    return _resized(call, [axes.get(i) for i in range(len(static_shape(call.data(), call)))])


def upsample(call: OnnxCall) -> relax.Expr:
    """Upsample -> as Resize, with asymmetric coordinates, rounded down."""
    return _legacy(call, call.constant(1, "scales"))


def _legacy(call: OnnxCall, scales: np.ndarray | None) -> relax.Expr:
    if scales is None:
        raise call.unsupported("it names no scales")
    factors = [float(s) for s in scales.reshape(-1)]
    mode = _checked(call, "mode", "nearest", _METHODS)
    axes = [
        Resampling(n, math.floor(n * s), s, mode, "asymmetric", "floor")
        for n, s in zip(static_shape(call.data(), call), factors, strict=True)
    ]
    return _resized(call, [axis if axis.result != axis.size else None for axis in axes])


def _checked(call: OnnxCall, attr: str, default: str, known: Sequence[str] | frozenset[str] | dict[str, str]) -> str:
    value = call.text(attr, default)
    if value not in known:
        raise call.unsupported(f"{attr} {value!r} is none of {sorted(known)}")
    return value


def _axes(call: OnnxCall) -> dict[int, Resampling]:
    """The resampling of every axis that the node names and changes."""
    shape = static_shape(call.data(), call)
    named = [normalize_axis(int(a), len(shape), call.name) for a in call.attrs.get("axes", range(len(shape)))]
    scales, sizes = _targets(call, [shape[axis] for axis in named])
    coordinates = _checked(call, "coordinate_transformation_mode", "half_pixel", COORDINATES)
    regions = _regions(call, len(named)) if coordinates == "tf_crop_and_resize" else [(0.0, 1.0)] * len(named)
    found = {}
    for axis, scale, size, region in zip(named, scales, sizes, regions, strict=True):
        resampling = Resampling(
            shape[axis],
            size,
            scale,
            _checked(call, "mode", "nearest", _METHODS),
            coordinates,
            _checked(call, "nearest_mode", "round_prefer_floor", ROUNDINGS),
            float(call.attrs.get("cubic_coeff_a", -0.75)),
            bool(call.attrs.get("exclude_outside", 0)),
            bool(call.attrs.get("antialias", 0)),
            region,
        )
        if size != shape[axis] or scale != 1.0 or region != (0.0, 1.0):
            found[axis] = resampling
    return found


def _targets(call: OnnxCall, extents: Sequence[int]) -> tuple[list[float], list[int]]:
    """Scale and size of every named axis."""
    scales, sizes = call.constant(2), call.constant(3)
    if sizes is None or not sizes.size:
        if scales is None or not scales.size:
            raise call.unsupported("it names neither scales nor sizes")
        factors = [float(s) for s in scales.reshape(-1)]
        return factors, [math.floor(n * s) for n, s in zip(extents, factors, strict=True)]
    wanted = [int(n) for n in sizes.reshape(-1)]
    factors = [size / n for size, n in zip(wanted, extents, strict=True)]
    policy = _checked(call, "keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    if policy == "stretch":
        return factors, wanted
    scale = min(factors) if policy == "not_larger" else max(factors)
    return [scale] * len(extents), [math.floor(scale * n + 0.5) for n in extents]


def _regions(call: OnnxCall, count: int) -> list[tuple[float, float]]:
    roi = call.constant(1)
    if roi is None or roi.size != 2 * count:
        raise call.unsupported(f"it crops, and its region does not hold {2 * count} numbers")
    values = [float(v) for v in roi.reshape(-1)]
    return list(zip(values[:count], values[count:], strict=True))


def _resized(call: OnnxCall, axes: Sequence[Resampling | None]) -> relax.Expr:
    if not any(axes):
        return call.data()
    if len(axes) == 4 and axes[:2] == [None, None] and all(a is None or _is_plain(a) for a in axes[2:]):
        return _resize2d(call, axes)
    return _axis_by_axis(call, axes)


def _is_plain(axis: Resampling) -> bool:
    """Whether ``image.resize2d``, which knows sizes but not scales, computes what ONNX defines."""
    exact = axis.result == axis.size * axis.scale
    crop = axis.coordinates in ("tf_crop_and_resize", "half_pixel_symmetric")
    return exact and not (axis.antialias or crop or (axis.result == 1 and axis.coordinates == "align_corners"))


def _resize2d(call: OnnxCall, axes: Sequence[Resampling | None]) -> relax.Expr:
    shape = static_shape(call.data(), call)
    like = next(axis for axis in axes if axis is not None)
    sizes = [n if axis is None else axis.result for n, axis in zip(shape, axes, strict=True)]
    return relax.op.image.resize2d(
        call.data(),
        size=relax.ShapeExpr(sizes[2:]),
        roi=[0.0] * 4,
        layout="NCHW",
        method=_METHODS[like.mode],
        coordinate_transformation_mode=like.coordinates,
        rounding_method=like.rounding,
        cubic_alpha=like.cubic,
        cubic_exclude=int(like.exclude_outside),
        extrapolation_value=0.0,
    )


def _axis_by_axis(call: OnnxCall, axes: Sequence[Resampling | None]) -> relax.Expr:
    x, dtype = call.data(), dtype_of(call.data())
    shape = static_shape(x, call)
    if "float" not in dtype:
        x = relax.op.astype(x, "float32")
    outside = np.zeros((1,) * len(axes), bool)
    for position, axis in enumerate(axes):
        if axis is not None:
            x = call.builder.normalize(_along(x, position, axis, call))
            missed = axis.outside().reshape((-1,) + (1,) * (len(axes) - 1 - position))
            outside = outside | missed
    if outside.any():
        sizes = [n if axis is None else axis.result for n, axis in zip(shape, axes, strict=True)]
        value = relax.const(float(call.attrs.get("extrapolation_value", 0.0)), dtype_of(x))
        x = relax.op.where(constant(np.broadcast_to(outside, sizes)), value, x)
    return x if "float" in dtype else relax.op.astype(x, dtype)


def _along(x: relax.Expr, position: int, axis: Resampling, call: OnnxCall) -> relax.Expr:
    """One axis resampled: ``take``, or ``matmul`` with the axis moved to the end."""
    weights = axis.matrix()
    if axis.mode == "nearest":
        return relax.op.take(x, constant(weights.argmax(axis=1)), position, mode="clip")
    last = x.ty.ndim - 1
    order = [i for i in range(last + 1) if i != position] + [position]
    moved = call.builder.normalize(relax.op.permute_dims(x, order))
    product = call.builder.normalize(relax.op.matmul(moved, constant(weights.T.astype(np.dtype(dtype_of(x))))))
    back = [i if i < position else last if i == position else i - 1 for i in range(last + 1)]
    return relax.op.permute_dims(product, back)


CONVERTERS: dict[str, Converter] = {"Resize": resize, "Upsample": upsample}
