"""The pipeline of a node's tiles, in their order and each with its own work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from torq_byoc.schedules.flow import Flow
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.slice_costs import SliceCost


class StepLoads(msgspec.Struct, frozen=True, gc=False):
    """How what a node loads is spread over its steps, in cycles of the channel.

    Attributes:
        ahead: what the first step loads beyond its share: operands that stay.
        element: a share for every element of a step's output.
        step: what every step loads, whatever its size: its sequencer code.
        program_byte: a byte of slice programs.
        turn: what an operand that stays for a run of the innermost loops loads before each such run.
        run: how many of the innermost loops that are.
    """

    ahead: float
    element: float
    step: float
    program_byte: float
    turn: float = 0.0
    run: int = 0


class Waits(msgspec.Struct, frozen=True, gc=False):
    """What slices and channel wait for one another where operands that stay have no second buffer.

    Attributes:
        works: works of a step that the channel waits for, an average step.
        cycles: cycles of transfers that the slices wait for, an average step.
    """

    works: float = 0.0
    cycles: float = 0.0


def tile_flow(
    shape: Sequence[int],
    decision: NodeDecision,
    work: Mapping[tuple[int, ...], SliceCost],
    loads: StepLoads,
    waits: Waits,
    store: float,
    portions: int,
) -> Flow:
    """The pipeline of all tiles; with portions every tile is as many steps, of which the last one stores.

    Args:
        shape: of the output.
        decision: tile and loop order.
        work: cost of every kind of tile, by extent.
        loads: transfers in.
        waits: of slices and channel.
        store: cycles to store an element.
        portions: of the reduction.
    """

    def leaf(extent: tuple[int, ...]) -> Flow:
        size, cost = math.prod(extent), work[extent]
        one = cost.cycles / portions
        load = (
            loads.element * size + loads.step + loads.program_byte * cost.program_bytes / portions + waits.works * one
        )
        last = Flow.step(load, one + waits.cycles, store * size)
        if portions == 1:
            return last
        return Flow.step(load, one + waits.cycles, 0.0).times(portions - 1).then(last)

    def nest(axes: Sequence[int], extent: tuple[int, ...]) -> Flow:
        flow = loop(axes[0], axes[1:], extent) if axes else leaf(extent)
        return Flow.step(loads.turn, 0.0, 0.0).then(flow) if loads.turn and len(axes) == loads.run else flow

    def loop(axis: int, inner: Sequence[int], extent: tuple[int, ...]) -> Flow:
        full, rest = divmod(shape[axis], extent[axis])
        flow = nest(inner, extent).times(full)
        return flow.then(nest(inner, (*extent[:axis], rest, *extent[axis + 1 :]))) if rest else flow

    return Flow.step(loads.ahead, 0.0, 0.0).then(nest(decision.order, decision.tile))
