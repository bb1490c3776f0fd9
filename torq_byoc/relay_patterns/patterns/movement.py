"""Operators that only move elements, on integer codes or on bf16."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from tvm import relax
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, is_op, wildcard

from torq_byoc.relay_patterns.legality import ACTIVATION_TYPES, int_attr
from torq_byoc.relay_patterns.lowering import Lowering, ints
from torq_byoc.relay_patterns.movement import MOVEMENT_OPS, is_movement, pad_fill, permutation
from torq_byoc.relay_patterns.registry import Pattern, Precision
from torq_byoc.relay_patterns.view import View, constant_value, dtype_of, op_name, static_shape

_VIEWS = ("reshape", "squeeze", "expand_dims", "flatten")


def _graph(name: str) -> DFPattern:
    return is_op(name)(wildcard(), varg_default_wildcard=True)


def _sources(call: Call) -> list[relax.Expr]:
    first = call.args[0]
    return list(first.fields) if isinstance(first, relax.Tuple) else [first]


def check(types: tuple[str, ...], view: View) -> list[str]:
    """Element type of the precision; constant parameters; constant pads; nearest resizes by whole factors."""
    call = view.root
    reasons = [f"it moves {kind}, not {' or '.join(types)}" for kind in {dtype_of(call)} - set(types)]
    if not is_movement(call):
        reasons.append(f"{op_name(call)} in this mode computes new values")
    if isinstance(getattr(call.args[0], "ty", None), relax.TupleType) and not isinstance(call.args[0], relax.Tuple):
        reasons.append("its inputs are not known one by one")
    if all(constant_value(source) is not None for source in _sources(call)):
        reasons.append("its data is constant")
    if reasons:
        return reasons
    if op_name(call) == "relax.strided_slice":
        reasons += _slice_reasons(call)
    if op_name(call) == "relax.image.resize2d":
        reasons += _resize_reasons(call)
    return reasons


def _slice_reasons(call: Call) -> list[str]:
    if not all(hasattr(argument, "fields") for argument in call.args[1:]):
        return ["its bounds are not constant"]
    steps = ints(call.args[4].fields) if len(call.args) > 4 else (1,)
    return ["it walks backwards"] if min(steps) < 1 else []


def _resize_reasons(call: Call) -> list[str]:
    """Only enlargements by a whole factor in which every source pixel becomes one block."""
    attrs, before, after = call.attrs, static_shape(call.args[0]), static_shape(call)
    if str(attrs.layout) != "NCHW":
        return [f"its layout is {attrs.layout}, not NCHW"]
    if any(new % old for old, new in zip(before[2:], after[2:], strict=True)):
        return [f"it resizes {list(before[2:])} to {list(after[2:])}, not by a whole factor"]
    for old, new in zip(before[2:], after[2:], strict=True):
        if not np.array_equal(_nearest(call, old, new), np.arange(new) // (new // old)):
            mode = f"{attrs.coordinate_transformation_mode} rounded by {attrs.rounding_method or 'default'}"
            return [f"coordinates {mode} do not repeat whole pixels"]
    return []


def _nearest(call: Call, old: int, new: int) -> np.ndarray:
    """Source index of every output index along one axis."""
    x, ratio = np.arange(new), old / new
    coordinates = str(call.attrs.coordinate_transformation_mode)
    if coordinates == "align_corners":
        position = x * ((old - 1) / max(1, new - 1))
    elif coordinates == "asymmetric":
        position = x * ratio
    else:
        position = (x + 0.5) * ratio - 0.5
    rounding = str(call.attrs.rounding_method) or "round"
    if rounding == "floor":
        return np.floor(position)
    if rounding == "ceil":
        return np.ceil(position)
    return np.floor(position + 0.5) if rounding == "round_prefer_ceil" else np.ceil(position - 0.5)


def _moves_nothing(call: Call, before: tuple[int, ...]) -> bool:
    """Whether every element stays where it lies: a slice of everything, no padding, axes of one element exchanged."""
    if op_name(call) == "relax.permute_dims":
        moved = [axis for axis in permutation(call, len(before)) if before[axis] > 1]
        return moved == sorted(moved)
    return math.prod(before) == math.prod(static_shape(call))


def _lower_slice(low: Lowering, call: Call, data: list[str]) -> str:
    shape = low.builder.info(data[0]).shape
    begin, step = [0] * len(shape), [1] * len(shape)
    axes, starts = ints(call.args[1].fields), ints(call.args[2].fields)
    steps = ints(call.args[4].fields) if len(call.args) > 4 else (1,) * len(axes)
    for axis, start, stride in zip(axes, starts, steps, strict=True):
        extent = shape[axis]
        begin[axis] = min(max(start + extent if start < 0 else start, 0), extent)
        step[axis] = stride
    attrs = {"begin": tuple(begin), "step": tuple(step)}
    return low.emit("slice", data, static_shape(call), attrs=attrs)


def _lower_pad(low: Lowering, call: Call, data: list[str]) -> str:
    widths = ints(call.attrs.pad_width)
    fill: float = pad_fill(call)
    value = fill if low.builder.info(data[0]).dtype.is_float else int(fill)
    attrs = {"before": widths[0::2], "after": widths[1::2], "value": value}
    return low.emit("pad", data, static_shape(call), attrs=attrs)


def _lower_tile(low: Lowering, call: Call, data: list[str]) -> str:
    """Repeating whole tensors is broadcasting an axis of 1 in front of each repeated axis."""
    shape, repeats = low.builder.info(data[0]).shape, ints(call.attrs.repeats)
    rank = max(len(shape), len(repeats))
    shape, repeats = (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(repeats)) + repeats
    split = [n for pair in zip((1,) * rank, shape, strict=True) for n in pair]
    grown = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    return _grown(low, data[0], split, grown, static_shape(call))


def _lower_repeat(low: Lowering, call: Call, data: list[str]) -> str:
    """Repeating each element is broadcasting an axis of 1 behind the repeated axis."""
    shape, count = list(low.builder.info(data[0]).shape), int_attr(call.attrs.repeats)
    axis = int_attr(call.attrs.axis) % len(shape)
    split = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    grown = [*shape[: axis + 1], count, *shape[axis + 1 :]]
    return _grown(low, data[0], split, grown, static_shape(call))


def _grown(low: Lowering, data: str, split: list[int], grown: list[int], shape: tuple[int, ...]) -> str:
    wide = low.emit("broadcast", [low.reshaped(data, split)], grown)
    return low.reshaped(wide, shape)


def lower(low: Lowering) -> str:
    """reshape, transpose, slice, concat, broadcast, pad or resize_nearest; codes keep their quantization."""
    call = low.view.root
    name = op_name(call).removeprefix("relax.")
    data, shape = [low.tensor(source) for source in _sources(call)], static_shape(call)
    if name in _VIEWS or (len(data) == 1 and _moves_nothing(call, low.builder.info(data[0]).shape)):
        return low.emit("reshape", data, shape)
    if name == "permute_dims":
        return low.emit("transpose", data, shape, attrs={"perm": tuple(permutation(call, len(shape)))})
    if name == "concat":
        return low.emit("concat", data, shape, attrs={"axis": int_attr(call.attrs.axis) % len(shape)})
    if name == "broadcast_to":
        return low.emit("broadcast", data, shape)
    if name == "image.resize2d":
        before = low.builder.info(data[0]).shape
        attrs = {"factors": (shape[2] // before[2], shape[3] // before[3])}
        return low.emit("resize_nearest", data, shape, attrs=attrs)
    special = {"strided_slice": _lower_slice, "nn.pad": _lower_pad, "tile": _lower_tile, "repeat": _lower_repeat}
    return special[name](low, call, data)


def _patterns(prefix: str, precision: Precision, types: tuple[str, ...]) -> tuple[Pattern, ...]:
    return tuple(
        Pattern(
            f"{prefix}.{name.rsplit('.', 1)[-1]}",
            precision,
            partial(_graph, name),
            partial(check, types),
            lower,
            moves_only=True,
        )
        for name in sorted(MOVEMENT_OPS)
    )


PATTERNS = (*_patterns("torq", "quantized", ACTIVATION_TYPES), *_patterns("torq.bf16", "bf16", ("float32",)))
