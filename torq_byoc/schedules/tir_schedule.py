"""A decision applied to a node's TIR function with schedule primitives.

Before (conv2d, abridged)::

    padded[...] = input0[...]
    accumulator[...] += padded[...] * input1[...]
    result[...] = act(accumulator[...])

After, for tiles of 8 channels x 4 rows::

    for c_0, y_0:                                   # "torq.tile_loop"
        input0_global.lram[...] = input0[...]       # "torq.load"
        input1_global.lram[...] = input1[...]       # "torq.load"
        padded, accumulator, result                 # plane logic, partials, ACT: never in memory
        result[...] = result_global.lram[...]       # "torq.store"

Where the sums are computed in portions, the reduction's outer loops are tile loops as well, around the loads::

        for c_0:                                    # "torq.tile_loop"
            input0_global.lram[...] = input0[...]   # "torq.load"
            accumulator[...] += ...                 # stays in PRAM

The scheduled function computes what the unscheduled one does, so it can be compiled for the CPU and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.tensor_expressions.definition import RESULT

LRAM = "global.lram"
TILE_LOOP = "torq.tile_loop"
"""Annotation of a tile loop; its value is the output axis, or the output's rank and on for reduction axes."""
SLICE_LOOP = "torq.slice_axis"
"""Annotation of the loop that is divided between the slices."""
TRANSFER = "torq.transfer"
"""Annotation of a block that is a DMA transfer: "load" or "store"."""
BUFFERS = "torq.buffers"
"""Annotation of a transfer: tiles in flight."""


def apply_decision(func: Any, decision: NodeDecision) -> Any:
    """Schedule the TIR function of a node.

    Args:
        func: the unscheduled function of a ``Definition``.
        decision: tiles, loop order, slice split and buffering.

    Returns:
        The ``tvm.s_tir.Schedule``; its module's function is "main".
    """
    from tvm import s_tir

    schedule = s_tir.Schedule(func)
    result = schedule.get_sblock(RESULT)
    producers = [
        block for block in schedule.get_child_blocks(schedule.get_sblock("root")) if not _is_result(schedule, block)
    ]
    innermost = loading = _tile_loops(schedule, result, decision)
    for block in reversed(producers):
        schedule.compute_at(block, loading, preserve_unit_loops=bool(decision.portion))
        schedule.set_scope(block, 0, f"global.{schedule.get(block).name_hint}")
        if decision.portion and block is producers[-1]:
            loading = _portion_loops(schedule, block, decision)
    for block in producers:
        _load_inputs(schedule, block, loading, decision.buffers)
    _load_inputs(schedule, result, innermost, decision.buffers)
    store = schedule.cache_write(result, 0, LRAM)
    schedule.reverse_compute_at(store, innermost)
    _annotate_transfer(schedule, store, "store", decision.buffers)
    return schedule


def _is_result(schedule: Any, block: Any) -> bool:
    return str(schedule.get(block).name_hint) == RESULT


def _tile_loops(schedule: Any, result: Any, decision: NodeDecision) -> Any:
    """Split and reorder the loops of the result; returns the innermost tile loop."""
    loops = schedule.get_loops(result)
    if not loops:
        return schedule.add_unit_loop(result)
    outer, inner = {}, {}
    for axis, loop in enumerate(loops):
        if decision.tile[axis] < int(schedule.get(loop).extent):
            outer[axis], inner[axis] = schedule.split(loop, [None, decision.tile[axis]])
        else:
            inner[axis] = loop
    if not outer:
        outer[0], inner[0] = schedule.split(loops[0], [1, None])
    order = [axis for axis in decision.order if axis in outer]
    schedule.reorder(*(outer[axis] for axis in order), *(inner[axis] for axis in range(len(loops))))
    for axis in order:
        schedule.annotate(outer[axis], TILE_LOOP, axis)
    if decision.split_axis is not None:
        schedule.annotate(inner[decision.split_axis], SLICE_LOOP, decision.split_axis)
    return outer[order[-1]]


def _portion_loops(schedule: Any, block: Any, decision: NodeDecision) -> Any:
    """Split the reduction of a block into portions, outside its other loops in the tile; returns the innermost."""
    from tvm import tirx

    rank = len(decision.tile)
    reduced = sum(var.iter_type == tirx.IterVar.CommReduce for var in schedule.get(block).iter_vars)
    loops = schedule.get_loops(block)[-(rank + reduced) :]
    outer, inner = [], list(loops)
    for axis, size in enumerate(decision.portion):
        if size < int(schedule.get(loops[rank + axis]).extent):
            first, inner[rank + axis] = schedule.split(loops[rank + axis], [None, size])
            schedule.annotate(first, TILE_LOOP, rank + axis)
            outer.append(first)
    schedule.reorder(*outer, *inner)
    return outer[-1]


def _load_inputs(schedule: Any, block: Any, loop: Any, buffers: int) -> None:
    """Stage every input that a block reads through LRAM, inside the tile loop."""
    for index, name in enumerate(_read_names(schedule, block)):
        if name.startswith("input"):
            load = schedule.cache_read(block, index, LRAM)
            schedule.compute_at(load, loop)
            _annotate_transfer(schedule, load, "load", buffers)


def _read_names(schedule: Any, block: Any) -> Sequence[str]:
    return [str(region.source.name) for region in schedule.get(block).reads]


def _annotate_transfer(schedule: Any, block: Any, kind: str, buffers: int) -> None:
    schedule.annotate(block, TRANSFER, kind)
    schedule.annotate(block, BUFFERS, buffers)
