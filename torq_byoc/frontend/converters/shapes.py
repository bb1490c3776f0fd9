"""Operators that move or re-index data: every one with constant parameters becomes a single Relax op."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant_array, dtype_of, static_shape
from torq_byoc.frontend.geometry import normalize_axis, reshape_target

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def reshape(call: OnnxCall) -> relax.Expr:
    """Reshape -> ``reshape`` with a fully known shape."""
    x = call.data()
    target = call.constant(1, "shape")
    if target is None:
        raise call.unsupported("it has no target shape")
    wanted = [int(v) for v in target.reshape(-1)]
    shape = reshape_target(static_shape(x, call), wanted, bool(call.attrs.get("allowzero", 0)), call.name)
    return _reshaped(x, shape)


def flatten(call: OnnxCall) -> relax.Expr:
    """Flatten -> ``reshape`` to two dimensions."""
    x = call.data()
    shape = static_shape(x, call)
    axis = int(call.attrs.get("axis", 1))
    axis = axis + len(shape) if axis < 0 else axis
    return _reshaped(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def squeeze(call: OnnxCall) -> relax.Expr:
    """Squeeze -> ``reshape``."""
    x = call.data()
    shape = static_shape(x, call)
    axes = call.constant(1, "axes")
    if axes is None:
        dropped = {i for i, n in enumerate(shape) if n == 1}
    else:
        dropped = {normalize_axis(int(a), len(shape), call.name) for a in axes.reshape(-1)}
    if any(shape[i] != 1 for i in dropped):
        raise call.unsupported(f"it removes a dimension larger than 1 from shape {list(shape)}")
    return _reshaped(x, tuple(n for i, n in enumerate(shape) if i not in dropped))


def unsqueeze(call: OnnxCall) -> relax.Expr:
    """Unsqueeze -> ``reshape``."""
    x = call.data()
    shape = list(static_shape(x, call))
    axes = call.constant(1, "axes")
    if axes is None:
        raise call.unsupported("it names no axes")
    rank = len(shape) + axes.size
    for axis in sorted(normalize_axis(int(a), rank, call.name) for a in axes.reshape(-1)):
        shape.insert(axis, 1)
    return _reshaped(x, tuple(shape))


def _reshaped(x: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
    array = constant_array(x)
    return relax.const(array.reshape(shape)) if array is not None else relax.op.reshape(x, shape)


def pad(call: OnnxCall) -> relax.Expr:
    """Pad -> ``nn.pad`` (constant, reflect, replicate or circular), after ``strided_slice`` where a pad is negative."""
    x = call.data()
    shape = static_shape(x, call)
    rank = len(shape)
    pads = call.constant(1, "pads")
    if pads is None:
        raise call.unsupported("it names no pads")
    axes = call.constant(3)
    positions = range(rank) if axes is None else [normalize_axis(int(a), rank, call.name) for a in axes.reshape(-1)]
    before, after = [0] * rank, [0] * rank
    half = pads.size // 2
    for i, axis in enumerate(positions):
        before[axis], after[axis] = int(pads.reshape(-1)[i]), int(pads.reshape(-1)[half + i])
    x = _cropped(x, shape, before, after)
    widths = [max(0, n) for pair in zip(before, after, strict=True) for n in pair]
    if not any(widths):
        return x
    value = call.constant(2, "value")
    fill = 0.0 if value is None or value.size == 0 else float(value.reshape(-1)[0])
    mode = call.text("mode", "constant")
    if mode not in _PAD_MODES:
        raise call.unsupported(f"pad mode {mode!r} is none of {sorted(_PAD_MODES)}")
    return relax.op.nn.pad(x, widths, _PAD_MODES[mode], fill)


def _cropped(x: relax.Expr, shape: tuple[int, ...], before: list[int], after: list[int]) -> relax.Expr:
    axes = [i for i in range(len(shape)) if before[i] < 0 or after[i] < 0]
    if not axes:
        return x
    begin = [max(0, -before[i]) for i in axes]
    end = [shape[i] - max(0, -after[i]) for i in axes]
    return relax.op.strided_slice(x, axes, begin, end)


def tile(call: OnnxCall) -> relax.Expr:
    """Tile -> ``tile``."""
    repeats = call.constant(1)
    if repeats is None:
        raise call.unsupported("it names no repeats")
    return relax.op.tile(call.data(), [int(n) for n in repeats.reshape(-1)])


def gather(call: OnnxCall) -> relax.Expr:
    """Gather -> ``take`` that never reads outside (mode clip).

    Constant indices are made non-negative; others become ``where(less(i, 0), add(i, n), i)``.
    """
    x, indices = call.data(0), call.data(1)
    shape = static_shape(x, call)
    axis = normalize_axis(int(call.attrs.get("axis", 0)), len(shape), call.name)
    array = constant_array(indices)
    if array is not None:
        return _taken(x, array, shape[axis], axis, call)
    dtype = dtype_of(indices)
    wrapped = relax.op.add(indices, relax.const(shape[axis], dtype))
    positive = relax.op.where(relax.op.less(indices, relax.const(0, dtype)), wrapped, indices)
    return relax.op.take(x, positive, axis, mode="clip")


def _taken(x: relax.Expr, indices: np.ndarray, extent: int, axis: int, call: OnnxCall) -> relax.Expr:
    if indices.size and not (-extent <= indices.min() and indices.max() < extent):
        raise ShapeError(
            "Gather reads beyond its tensor",
            where=f"node {call.name!r}",
            why=f"indices {indices.min()}..{indices.max()} of a dimension of {extent}",
            remedy="export the model again; the file does not follow the ONNX operator definition",
        )
    positive = np.where(indices < 0, indices + extent, indices).astype(indices.dtype)
    return relax.op.take(x, relax.const(positive), axis, mode="clip")


CONVERTERS: dict[str, Converter] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Pad": pad,
    "Tile": tile,
    "Gather": gather,
}
