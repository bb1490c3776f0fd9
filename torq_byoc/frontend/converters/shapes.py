"""Operators that move or re-index data: every one with constant parameters becomes a single Relax op."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant, constant_array, dtype_of, static_shape
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
    return constant(array.reshape(shape)) if array is not None else relax.op.reshape(x, shape)


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
    if math.isfinite(fill):
        return relax.op.nn.pad(x, widths, _PAD_MODES[mode], fill)
    return _framed(call.builder.normalize(x), widths, fill, call)


def _framed(x: relax.Expr, widths: Sequence[int], fill: float, call: OnnxCall) -> relax.Expr:
    """Padding with an infinity or NaN, which cannot be written as an attribute: a choice between two tensors."""
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    inside = np.pad(np.ones(static_shape(x, call), bool), pairs)
    padded = relax.op.nn.pad(x, list(widths), "constant", 0.0)
    return relax.op.where(constant(inside), padded, relax.const(fill, dtype_of(x)))


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


def space_to_depth(call: OnnxCall) -> relax.Expr:
    """SpaceToDepth -> ``reshape``, ``permute_dims``, ``reshape``; blocks outside channels unless mode=CRD."""
    x, block = call.data(), int(call.attrs["blocksize"])
    batch, channels, rows, columns = static_shape(x, call)
    split = relax.op.reshape(x, (batch, channels, rows // block, block, columns // block, block))
    axes = [0, 1, 3, 5, 2, 4] if call.text("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    shape = (batch, channels * block * block, rows // block, columns // block)
    return relax.op.reshape(relax.op.permute_dims(split, axes), shape)


CONVERTERS: dict[str, Converter] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Pad": pad,
    "Tile": tile,
    "SpaceToDepth": space_to_depth,
}
