"""Several orders of one program: which way of looking for places suits it is found by trying.

Where results lie decides how early loads find room beside them, and which programs come out equal; neither way of
placing results is always the better one.  An order costs little next to a finished program, so several are made and
timed on their loads, slice programs and stores alone, until one is as fast as its busiest engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torq_byoc.codegen.bytes_first import orders_by_bytes
from torq_byoc.codegen.call_images import CallImages
from torq_byoc.codegen.clean_copies import Copy
from torq_byoc.codegen.dependencies import AddressMap, Dependencies, dependencies, start_times
from torq_byoc.codegen.hl import RunProgram
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.placement import Arrangement, Early
from torq_byoc.codegen.prefetch import MAX_ATTEMPTS, PLAIN, PUNCTUAL, OrderedProgram, order
from torq_byoc.codegen.result_places import ResultPlacer
from torq_byoc.codegen.twins import NO_TWINS, Twins
from torq_byoc.errors import LramOverflowError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import DMA_IN, WaitFor

ARRANGEMENTS = (
    PLAIN,
    Arrangement(into_gaps=True, linger_last=True),
    Arrangement(into_gaps=True),
    Arrangement(into_gaps=True, largest_first=True),
)
BY_TWINS = Arrangement(into_gaps=True, by_twins=True)
FEW_OPS = 5_000
"""Of a program with more, only the first two arrangements are tried: each takes a tenth of the time of the program."""
RIVAL_OPS = 10_000
"""Of a program with more, no other arrangement is tried where one fits."""
RIVAL_WORK = 40_000
"""Ops that attempts at an arrangement may place together where another one fits already."""
WAITING = 0.8
"""Share of the cycles in which the channel loads, from which on fewer bytes of slice programs save time."""
CLOSE = 1.005
"""Cycles over those of the busiest engine up to which no other order is worth a try."""


def arranged(
    program: RunProgram, config: NpuConfig, allowed: Early, copies: Mapping[int, Copy]
) -> Iterator[OrderedProgram]:
    """The orders whose buffers find room, one after the other: at least one.

    Args:
        program: torq_hl after the passes.
        config: the machine.
        allowed: which loads may be issued early; where no such order fits, none is.
        copies: what buffers hold that XRAM holds as well, to be used again where they can stay.

    Raises:
        LramOverflowError: nothing fits even without early loads.
    """
    results = ResultPlacer(Needs.of(program, config, copies), config.lram_usable)
    rival_attempts = _rival_attempts(program)
    several = ARRANGEMENTS if len(program.ops) <= FEW_OPS else ARRANGEMENTS[:2]
    for early in dict.fromkeys((allowed, PUNCTUAL)):
        found, same = False, None
        for arrangement in several if early.across_nodes else (PLAIN,):
            attempts = rival_attempts if found else MAX_ATTEMPTS
            ordered = order(results, early, arrangement, attempts) if attempts and arrangement != same else None
            if ordered is not None:
                found = True
                same = replace(arrangement, linger_last=False) if ordered.whole else None
                yield ordered
        if found and early.across_nodes:
            yield from orders_by_bytes(results, early)
        if found:
            return
    raise LramOverflowError(
        "the tiles of this schedule cannot be laid out in LRAM together",
        where=f"{config.name}, {config.lram_usable} usable bytes",
        why="even without prefetching the buffers alive in one step leave no large enough gap",
        remedy="schedule with a smaller budget, or choose a machine with more LRAM",
    )


def arranged_by_twins(
    program: RunProgram, config: NpuConfig, allowed: Early, copies: Mapping[int, Copy], calls: CallImages
) -> OrderedProgram | None:
    """The order in which calls that are alike find operands in the same places, so that programs serve several of them.

    None where no two calls are alike, no room is found, loads may not be early, or the program is large: there slices
    seldom wait for programs.  Arguments as of ``arranged``, and the images of the program's calls.
    """
    attempts = _rival_attempts(program)
    twins = Twins.of(program, calls) if attempts and allowed.across_nodes else NO_TWINS
    if not twins.kept:
        return None
    results = ResultPlacer(Needs.of(program, config, copies, twins), config.lram_usable)
    return order(results, allowed, BY_TWINS, attempts)


def _rival_attempts(program: RunProgram) -> int:
    """Attempts at an arrangement where another one fits already."""
    ops = max(1, len(program.ops))
    return min(MAX_ATTEMPTS, RIVAL_WORK // ops) if ops <= RIVAL_OPS else 0


def order_dependencies(ordered: OrderedProgram) -> Dependencies:
    """What the ops of an order depend on, with every tensor that leaves LRAM at an address of its own."""
    program, offsets = ordered.program, ordered.offsets
    return dependencies(program, AddressMap(offsets, {index: program.buffers[index].nbytes for index in offsets}))


def order_cycles(ordered: OrderedProgram, needed: Dependencies) -> int:
    """Cycles of an order: loads, slice programs and stores, without what the sequencer itself loads.

    Args:
        ordered: the order.
        needed: its ``order_dependencies``.
    """
    ops = ordered.program.ops
    return max((start + op.cycles for start, op in zip(start_times(ops, needed), ops, strict=True)), default=0)


def keeps_an_engine_busy(ordered: OrderedProgram, needed: Dependencies, cycles: int) -> bool:
    """Whether an order of so many cycles is as fast as the work of its busiest engine allows, but for ``CLOSE``."""
    return cycles <= CLOSE * max(_busy(ordered, needed).values(), default=0)


def waits_for_loads(ordered: OrderedProgram, needed: Dependencies, cycles: int) -> bool:
    """Whether the channel loads for most of the cycles of an order."""
    return _busy(ordered, needed).get(WaitFor(DMA_IN), 0) >= WAITING * cycles


def _busy(ordered: OrderedProgram, needed: Dependencies) -> dict[WaitFor, int]:
    """Busy cycles of every engine."""
    busy = dict.fromkeys(needed.engines, 0)
    for op, engine in zip(ordered.program.ops, needed.engines, strict=True):
        busy[engine] += op.cycles
    return busy
