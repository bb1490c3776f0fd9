"""The ACT modes on one input, and table look-up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.schedules.tensor_expressions.arithmetic import ActStage, clip_float, integer, saturate, widen, wrap
from torq_byoc.schedules.tensor_expressions.definition import RESULT, Operands, defines

_SHIFTS = ("LSL", "LSR", "ASR")


@defines("act")
def act(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Every ACT mode but TABLE."""
    from tvm import te

    source = graph.tensors[node.inputs[0]].dtype
    stage = ActStage.of(graph, node, operands)
    mode = node.attrs.get("mode", "ACT")
    rounding = Rounding.NTP if node.rescale is None else node.rescale.rounding

    def element(*index: Any) -> Any:
        value = widen(operands.inputs[0](*index), source)
        if mode == "CLZ":
            return stage.narrow(_leading_zeros(wrap(value, 32)))
        if mode in _SHIFTS:
            places = _amount(operands.inputs[1], index).astype("int64") & integer(63)
            return stage.narrow(_shifted(mode, wrap(value, 32), places, rounding))
        total = _MODES[mode](stage.biased(value, index))
        if mode == "I2F":
            return clip_float(total.astype("float32"), *stage.clip).astype(stage.out.value)
        if mode == "F2I":
            return stage.narrow(_to_integer(total, rounding))
        return stage.finish(total, index)

    return te.compute(stage.shape, element, name=RESULT)


@defines("table")
def table(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Piecewise linear look-up: the rescale gives an int16 whose high bits pick the entry."""
    from tvm import te

    source = graph.tensors[node.inputs[0]].dtype
    stage, entries = ActStage.of(graph, node, operands), cast(Any, operands.table)

    def position(*index: Any) -> Any:
        total = stage.biased(widen(operands.inputs[0](*index), source), index)
        return saturate(stage.scaled(total, index), DType.INT16)

    x = te.compute(stage.shape, position, name="position")

    def looked_up(*index: Any) -> Any:
        place = x(*index).astype("int32")
        row = (place >> 7) + 256
        base, slope = entries[row, 0].astype("int32"), entries[row, 1].astype("int32")
        value = (base + ((slope * (place & 127) + 64) >> 7)).astype("int64")
        zero_point = integer(int(node.attrs.get("out_zero_point", 0)))
        low, high = node.attrs.get("clip_min", -math.inf), node.attrs.get("clip_max", math.inf)
        return saturate(value + zero_point, stage.out, low, high)

    return te.compute(stage.shape, looked_up, name=RESULT)


def _amount(entries: Any, index: Sequence[Any]) -> Any:
    """The shift amount of an output element: the scale slot of its bias/scale entry."""
    leading = [int(extent) for extent in entries.shape[:-1]]
    own = index[len(index) - len(leading) :]
    return entries(*(0 if extent == 1 else i for extent, i in zip(leading, own, strict=True)), 1)


def _absolute(value: Any) -> Any:
    from tvm import tirx

    return tirx.abs(value)


def _ceil(value: Any) -> Any:
    from tvm import tirx

    return tirx.ceil(value)


def _floor(value: Any) -> Any:
    from tvm import tirx

    return tirx.floor(value)


def _same(value: Any) -> Any:
    return value


_MODES = {
    "ACT": _same,
    "I2F": _same,
    "F2I": _same,
    "ABS": _absolute,
    "NEG": lambda value: -value,
    "CEL": _ceil,
    "FLR": _floor,
}


def _leading_zeros(value: Any) -> Any:
    """Leading zeros of a 32-bit number held in an int64."""
    from tvm import tirx

    word = value & integer(0xFFFFFFFF)
    return tirx.Select(tirx.EQ(word, integer(0)), integer(32), tirx.clz(word).astype("int64") - integer(32))


def _shifted(mode: str, value: Any, places: Any, rounding: Rounding) -> Any:
    """A 32-bit number shifted by 0..63 places; an int64 expression of a 32-bit result."""
    from tvm import te, tirx

    if mode == "LSL":
        shifted = value << te.min(places, integer(31))
        return wrap(tirx.Select(places < integer(32), shifted, integer(0)), 32)
    if mode == "LSR":
        return wrap((value & integer(0xFFFFFFFF)) >> places, 32)
    if rounding is Rounding.OFF:
        return value >> places
    half = tirx.Select(places > integer(0), integer(1) << te.max(places - integer(1), integer(0)), integer(0))
    if rounding is Rounding.NTE:
        odd = tirx.Select(places > integer(0), (value >> places) & integer(1), integer(0))
        return (value + te.max(half - integer(1), integer(0)) + odd) >> places
    return (value + half) >> places


def _to_integer(value: Any, rounding: Rounding) -> Any:
    """fp32 to int64 by the rounding mode; NaN is 0."""
    from tvm import te, tirx

    wide = value.astype("float64")
    if rounding is Rounding.OFF:
        rounded = tirx.trunc(wide)
    elif rounding is Rounding.NTE:
        rounded = tirx.nearbyint(wide)
    else:
        rounded = tirx.floor(wide + tirx.const(0.5, "float64"))
    limit = float(1 << 40)
    bounded = te.min(te.max(rounded, tirx.const(-limit, "float64")), tirx.const(limit, "float64"))
    return tirx.Select(tirx.isnan(wide), tirx.const(0.0, "float64"), bounded).astype("int64")
