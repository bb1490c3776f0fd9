"""Prefetch and double buffering: the final order of a program, every load as early as memory allows.

Two kinds of early loads can be switched off on their own: those of the node's next tile while this one runs (double
buffering, and with it the place of its own that a next result has), and those that start before their node does
(prefetch).  Where buffers lie and when is found by ``placement``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torq_byoc.codegen.hl import Load, Op, RunProgram, SliceRun, Store
from torq_byoc.codegen.lifetimes import Lifetime
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.passes.rewriting import renamed
from torq_byoc.codegen.placement import Arrangement, Early, Placement, Relief
from torq_byoc.codegen.result_places import ResultPlacer

MAX_ATTEMPTS = 40
EARLY = Early()
PUNCTUAL = Early(False, False)
PLAIN = Arrangement()


@dataclass(frozen=True)
class EarlyLoads:
    """Transfers and bytes that are issued before the step that needs them.

    Attributes:
        across_nodes: before the first step of their node.
        across_tiles: during an earlier step of it.
    """

    across_nodes: dict[str, int]
    across_tiles: dict[str, int]


@dataclass(frozen=True, eq=False)
class OrderedProgram:
    """Ops in their final linear order.

    Attributes:
        program: the ops.
        lifetimes, offsets: slots and LRAM offset (bytes) of every LRAM buffer.
        ahead: which loads run ahead.
        whole: whether nothing optional was given up for lack of room.
    """

    program: RunProgram
    lifetimes: Mapping[int, Lifetime]
    offsets: Mapping[int, int]
    ahead: EarlyLoads
    whole: bool = False


def order(
    results: ResultPlacer,
    early: Early = EARLY,
    arrangement: Arrangement = PLAIN,
    attempts: int = MAX_ATTEMPTS,
) -> OrderedProgram | None:
    """Choose issue slots and LRAM offsets, and emit the linear order.

    Where a buffer finds no room, what was optional around it is given up (early loads of the same step, results that
    linger for their store, copies that stay) and everything is placed again.

    Args:
        results: places the results of the program, and knows what its buffers need.
        early: which loads may be issued before the step that needs them.
        arrangement: how buffers look for their places.
        attempts: how often to place everything at most.

    Returns:
        Ops ordered slot by slot (loads issued in the slot, slice programs, stores), or None when some buffer finds no
        room even so.
    """
    relief = Relief()
    for _ in range(attempts):
        placement = Placement(results, relief)
        slots = placement.place(early, arrangement)
        if slots is not None:
            places = placement.places
            found = ordered_program(results.needs, slots, placement.reused, places.lifetimes, places.offsets)
            return replace(found, whole=relief == Relief())
        more = placement.relieved(linger_last=arrangement.linger_last)
        if more == relief:
            return None
        relief = more
    return None


def ordered_program(
    needs: Needs,
    slots: Mapping[int, int],
    reused: Mapping[int, int],
    lifetimes: Mapping[int, Lifetime],
    offsets: Mapping[int, int],
) -> OrderedProgram:
    """A program in the order that slots give.

    Args:
        needs: of the program.
        slots: issue slot of every fetched buffer that is loaded.
        reused: for buffers that need no load, the buffer that holds the same.
        lifetimes, offsets: slots and LRAM offsets (bytes) of all other LRAM buffers.
    """
    ops = _linear(needs.program, slots, reused)
    return OrderedProgram(needs.program.with_ops(ops), lifetimes, offsets, _early_loads(needs, slots))


def _early_loads(needs: Needs, slots: Mapping[int, int]) -> EarlyLoads:
    """What is issued early, given the issue slot of every fetched buffer."""
    counts = EarlyLoads({"early_transfers": 0, "early_bytes": 0}, {"early_transfers": 0, "early_bytes": 0})
    for op in needs.program.ops:
        if type(op) is Load and slots.get(op.target.buffer, op.step) < op.step:
            before_node = slots[op.target.buffer] < needs.starts.get(op.node, op.step)
            kind = counts.across_nodes if before_node else counts.across_tiles
            kind["early_transfers"] += 1
            kind["early_bytes"] += op.transfer.nbytes
    return counts


def _linear(program: RunProgram, slots: Mapping[int, int], reused: Mapping[int, int]) -> list[Op]:
    ops: list[Op] = []
    places: list[int] = []
    for op in program.ops:
        if type(op) is SliceRun:
            ops.append(renamed(op, reused) if reused else op)
            places.append(3 * op.step + 1)
        elif type(op) is Store:
            ops.append(op)
            places.append(3 * op.step + 2)
        elif op.target.buffer in slots:
            ops.append(op)
            places.append(3 * slots[op.target.buffer])
    return [ops[index] for index in sorted(range(len(ops)), key=places.__getitem__)]
