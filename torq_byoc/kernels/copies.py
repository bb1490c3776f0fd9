"""Moving bytes: copies of strided boxes and fills with a constant.

Copies are plain integer passes through ALU and ACT, so every bit pattern survives whatever the element
type.  Where source and destination share a contiguous run, elements may travel in wider units: a transpose
that keeps runs of four bytes gathers four bytes an address instead of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.blocks import transposing_nests
from torq_byoc.kernels.dsl import LoopNest, cheapest
from torq_byoc.kernels.views import View, Walk, collapse, walks
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, SliceTask

PASS = AluConfig(Op0.DBYP, Op1.BYP)
"""The ALU hands D to ACT unchanged."""

_CARRIERS = {1: DType.INT8, 2: DType.INT16, 4: DType.INT32}


def copy_task(source: View, target: View, extent: Sequence[int], config: NpuConfig) -> SliceTask:
    """Copy a box; both views have elements of the same size.

    Args:
        source, target: views over the box; broadcast axes of the source have stride 0.
        extent: the box.
        config: the machine.
    """
    extents, (source, target) = collapse(extent, (source, target))
    return cheapest(_copy_nests(source, target, extents, config), config)


def _copy_nests(source: View, target: View, extent: tuple[int, ...], config: NpuConfig) -> Iterator[LoopNest]:
    for units, reader, writer in _unit_choices(source, target, extent):
        if not writer.window:
            yield from transposing_nests(reader, writer, units, config)
        for walk in walks(units, writer):
            operands = walk.operand(writer), walk.operand(reader)
            yield LoopNest(walk.loops, *operands, alu=PASS, window=writer.window, vector=walk.vector)


def _unit_choices(source: View, target: View, extent: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], View, View]]:
    """The box in elements, then in every wider unit that divides a run contiguous on both sides."""
    size = source.dtype.size
    yield extent, _carried(source, size), _carried(target, size)
    runs = [axis for axis in range(len(extent)) if source.strides[axis] == target.strides[axis] == size]
    for unit in (2, 4):
        for axis in runs:
            if unit > size and extent[axis] * size % unit == 0:
                units = (*extent[:axis], extent[axis] * size // unit, *extent[axis + 1 :])
                yield units, _carried(source, unit, axis), _carried(target, unit, axis)


def _carried(view: View, unit: int, run: int | None = None) -> View:
    """The view in integers of ``unit`` bytes; axis ``run``, where given, steps from unit to unit."""
    strides = tuple(unit if axis == run else stride for axis, stride in enumerate(view.strides))
    return View(view.address, _CARRIERS[unit], strides, view.window)


def fill_tasks(target: View, extent: Sequence[int], value: float, config: NpuConfig) -> list[SliceTask]:
    """Write a constant to every element of a box.

    The writer's constant has 16 bits: a 4-byte value whose halves differ takes two tasks, one a half.

    Args:
        target: view over the box.
        extent: the box.
        value: a value of the view's element type.
        config: the machine.
    """
    raw = np.asarray(value).astype(target.dtype.numpy).reshape(1)
    if target.dtype.size < 4:
        word = int(raw.view(np.uint8 if target.dtype.size == 1 else np.uint16)[0])
        return [_fill_task(replace(target, dtype=_CARRIERS[target.dtype.size]), extent, word, config)]
    low, high = (int(half) for half in raw.view("<u2"))
    if low == high:
        halves = replace(target, dtype=DType.INT16, strides=(*target.strides, 2))
        return [_fill_task(halves, (*extent, 2), low, config)]
    half = replace(target, dtype=DType.INT16)
    upper = replace(half, address=half.address + 2)
    return [_fill_task(half, extent, low, config), _fill_task(upper, extent, high, config)]


def _fill_task(target: View, extent: Sequence[int], word: int, config: NpuConfig) -> SliceTask:
    extents, (view,) = collapse(extent, (target,))

    def nest(walk: Walk) -> LoopNest:
        return LoopNest(walk.loops, walk.operand(view), fill_value=word)

    return cheapest((nest(walk) for walk in walks(extents, view)), config)
