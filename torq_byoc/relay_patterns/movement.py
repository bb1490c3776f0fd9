"""Operators that only move elements: they commute with quantize and dequantize of the whole tensor."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from torq_byoc.relay_patterns.view import Quantization, op_name, shape_of

MOVEMENT_OPS = frozenset(
    f"relax.{name}"
    for name in (
        "reshape",
        "permute_dims",
        "squeeze",
        "expand_dims",
        "flatten",
        "strided_slice",
        "broadcast_to",
        "tile",
        "repeat",
        "concat",
        "nn.pad",
        "image.resize2d",
    )
)


def is_movement(call: relax.Expr) -> bool:
    """Whether the call only moves elements (interpolating resizes and mirrored pads do more, or other things)."""
    name = op_name(call)
    if name == "relax.image.resize2d":
        return str(call.attrs.method) == "nearest_neighbor"
    if name == "relax.nn.pad":
        return str(call.attrs.pad_mode) == "constant"
    return name in MOVEMENT_OPS


def applied_to(call: Call, data: relax.Expr, fill: float | None = None) -> Call:
    """The same movement of other data (a tuple for concat); ``fill`` replaces the value of a pad."""
    if op_name(call) == "relax.nn.pad" and fill is not None:
        moved = relax.op.nn.pad(data, [int(n) for n in call.attrs.pad_width], "constant", fill)
        return relax.Call(moved.op, moved.args, moved.attrs, moved.ty_args, call.span)
    return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args, call.span)


def pad_fill(call: Call) -> float:
    """The value that a constant pad writes."""
    return float(call.attrs.pad_value)


def moved_constant(call: Call, value: np.ndarray) -> np.ndarray | None:
    """The constant after a reshape or transpose; None for other movements."""
    shape = shape_of(call)
    if shape is None:
        return None
    if op_name(call) == "relax.permute_dims":
        axes = permutation(call, value.ndim)
        return np.ascontiguousarray(value.transpose(axes))
    if op_name(call) in ("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims"):
        return value.reshape(shape)
    return None


def moved_axis(call: Call, quant: Quantization, before: tuple[int, ...]) -> int | None:
    """Where the channel axis of a per-channel quantization ends up; None when it does not survive."""
    after = shape_of(call)
    if after is None:
        return None
    if op_name(call) == "relax.permute_dims":
        return permutation(call, len(before)).index(quant.axis)
    channels, leading = before[quant.axis], math.prod(before[: quant.axis])
    for axis, extent in enumerate(after):
        if extent == channels and math.prod(after[:axis]) == leading:
            return axis
    return None


def permutation(call: Call, rank: int) -> list[int]:
    """The axes of a permute_dims; reversed when it names none."""
    axes = call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(a) % rank for a in axes]


def slice_of_split(call: Call, index: int) -> Call | None:
    """Part ``index`` of a split as a strided slice; None when shapes are not static."""
    shape = shape_of(call.args[0])
    if shape is None:
        return None
    axis = int(call.attrs.axis) % len(shape)
    parts = call.attrs.indices_or_sections
    if isinstance(parts, tvm.tirx.IntImm):
        size = math.ceil(shape[axis] / int(parts))
        cuts = list(range(size, shape[axis], size))
    else:
        cuts = [int(p) for p in parts]
    begin, end = [0, *cuts][index], [*cuts, shape[axis]][index]
    part = relax.op.strided_slice(call.args[0], [axis], [begin], [end])
    return relax.Call(part.op, part.args, part.attrs, part.ty_args, call.span)
