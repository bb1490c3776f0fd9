"""The codegen stage as a whole: torq_hl, its passes, order, addresses, machine program."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torq_byoc.codegen.allocation import Request
from torq_byoc.codegen.arrangements import (
    arranged,
    arranged_by_twins,
    keeps_an_engine_busy,
    order_cycles,
    order_dependencies,
    waits_for_loads,
)
from torq_byoc.codegen.build import build
from torq_byoc.codegen.call_images import CallImages
from torq_byoc.codegen.clean_copies import clean_copies
from torq_byoc.codegen.dependencies import AddressMap, Dependencies
from torq_byoc.codegen.hl import CallProgram, Load, Op, RunProgram, SliceRun
from torq_byoc.codegen.lower import lower
from torq_byoc.codegen.memory import memory_map
from torq_byoc.codegen.passes import (
    NAMES,
    LedgerEntry,
    Pass,
    check_pass_names,
    passes_for,
    run_passes,
    saving,
)
from torq_byoc.codegen.placement import Early
from torq_byoc.codegen.prefetch import OrderedProgram
from torq_byoc.codegen.programs import with_programs
from torq_byoc.codegen.share_programs import Images, share_programs, slice_programs
from torq_byoc.errors import LramOverflowError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.timing import Timeline, simulate_timeline
from torq_byoc.npu_model.trace import Step, trace
from torq_byoc.schedules.scheduled import Schedule


@dataclass(frozen=True)
class GeneratedProgram:
    """The machine program of one partition with what the reports and checks need: ``steps`` are its ``trace``, ``jobs``
    has the op behind every start of the program and ``addresses`` the places of their buffers, ``lram_requests`` are
    sizes and lifetimes of all LRAM buffers, ``timeline`` is the program's in the reference profile."""

    program: Program
    steps: tuple[Step, ...]
    jobs: tuple[Op | None, ...]
    addresses: AddressMap
    timeline: Timeline
    lram_peak: int
    lram_requests: tuple[Request, ...]
    ledger: tuple[LedgerEntry, ...]
    layer_bytes: dict[str, dict[str, int]]


def generate(
    graph: OpGraph,
    schedule: Schedule,
    config: NpuConfig,
    *,
    disabled: Collection[str] = (),
    observe: Callable[[str, CallProgram | RunProgram], None] | None = None,
) -> GeneratedProgram:
    """Generate the machine program of a scheduled graph.

    Args:
        graph: the operators.
        schedule: decisions for every node.
        config: the machine.
        disabled: passes to leave out; of what the schedule decides ``schedule`` must have been made without them.
        observe: called with (pass name, program) after each pass.

    Raises:
        LramOverflowError: no order of loads lets the buffers be laid out.
        ScheduleError: a disabled pass does not exist.
    """
    check_pass_names(disabled)
    naive = build(graph, schedule, config)
    if observe:
        observe("build", naive)
    generator = _Generator(graph, config, observe or (lambda name, program: None))
    passes = passes_for(schedule, config)
    try:
        return generator.run(naive, passes, disabled)
    except LramOverflowError:
        if _OCCUPYING.issubset(disabled):
            raise
        return generator.run(naive, passes, {*disabled, *_OCCUPYING})


_OCCUPYING = frozenset({"in-place"})
"""Passes by which buffers may live longer than the schedule counts on (it does for parts of concatenations inside
groups): given up where there is no room for that."""


@dataclass(frozen=True)
class _Order:
    """One order of loads: its slice programs, the order without those that LRAM holds already, and what its ops depend
    on (``order_dependencies``)."""

    ordered: OrderedProgram
    images: Images
    shared: OrderedProgram
    needed: Dependencies

    @cached_property
    def cycles(self) -> int:
        """See ``order_cycles``."""
        return order_cycles(self.shared, self.needed)


@dataclass(frozen=True)
class _Generator:
    """From naive torq_hl to the machine program, step by step."""

    graph: OpGraph
    config: NpuConfig
    observe: Callable[[str, CallProgram | RunProgram], None]

    def run(
        self, naive: CallProgram, passes: Sequence[tuple[str, Pass]], disabled: Collection[str]
    ) -> GeneratedProgram:
        """Improve, cut into programs, and lower the fastest order of loads."""
        improved, ledger = run_passes(naive, passes, disabled, self.observe)
        program = with_programs(improved, self.graph, self.config)
        started = time.perf_counter()
        allowed = Early("prefetch" not in disabled, "double-buffering" not in disabled)
        copies = {} if "clean-copies" in disabled else clean_copies(program)
        calls = CallImages(program, self.graph, self.config)
        orders = arranged(program, self.config, allowed, copies)
        chosen = _fastest(self._shared(ordered, calls, disabled) for ordered in orders)
        if "share-programs" not in disabled and waits_for_loads(chosen.shared, chosen.needed, chosen.cycles):
            alike = arranged_by_twins(program, self.config, allowed, copies, calls)
            if alike is not None:
                chosen = min(chosen, self._shared(alike, calls, disabled), key=lambda order: order.cycles)
        seconds = time.perf_counter() - started
        self.observe("order", chosen.ordered.program)
        if "share-programs" not in disabled:
            self.observe("share-programs", chosen.shared.program)
        memory = memory_map(chosen.shared, self.config)
        lowered = lower(chosen.shared.program, memory, chosen.needed, chosen.images, self.graph, self.config)
        entries = {entry.name: entry for entry in (*ledger, *_ordering(program, chosen, seconds))}
        reported = tuple(entries[name] for name in NAMES if name in entries and name not in disabled)
        layers = _layer_bytes(chosen.shared.program)
        steps = tuple(trace(lowered.program))
        return GeneratedProgram(
            lowered.program,
            steps,
            lowered.jobs,
            memory.addresses,
            simulate_timeline(lowered.program, steps=steps),
            memory.lram_peak,
            memory.lram_requests,
            reported,
            layers,
        )

    def _shared(self, ordered: OrderedProgram, calls: CallImages, disabled: Collection[str]) -> _Order:
        """An order with its slice programs encoded, each sent once."""
        images = slice_programs(ordered, calls)
        shared = ordered if "share-programs" in disabled else share_programs(ordered, images, self.config)
        return _Order(ordered, images, shared, order_dependencies(shared))


def _fastest(orders: Iterable[_Order]) -> _Order:
    """The fastest order; none is made after one that cannot be beaten."""
    fastest: _Order | None = None
    for order in orders:
        if fastest is None or order.cycles < fastest.cycles:
            fastest = order
        if keeps_an_engine_busy(order.shared, order.needed, order.cycles):
            break
    assert fastest is not None, "some order fits, or LramOverflowError was raised"
    return fastest


def _ordering(program: RunProgram, order: _Order, seconds: float) -> tuple[LedgerEntry, ...]:
    """What an order saved, by technique; the time that all orders took stands with the first cause of early loads."""
    ahead = order.ordered.ahead
    before, after = order.ordered.program.traffic, order.shared.program.traffic
    return (
        LedgerEntry("slice-split", 0.0, _side_by_side(program)),
        LedgerEntry("clean-copies", 0.0, saving(program.traffic, before)),
        LedgerEntry("double-buffering", 0.0, ahead.across_tiles),
        LedgerEntry("prefetch", seconds, ahead.across_nodes),
        LedgerEntry("share-programs", 0.0, saving(before, after)),
    )


def _side_by_side(program: RunProgram) -> dict[str, int]:
    """Cycles that slices work beside the busiest one of their step."""
    steps: dict[int, list[int]] = {}
    for op in program.ops:
        if type(op) is SliceRun:
            steps.setdefault(op.step, []).append(op.cycles)
    return {"slice_cycles": sum(sum(cycles) - max(cycles) for cycles in steps.values())}


def _layer_bytes(program: RunProgram) -> dict[str, dict[str, int]]:
    """DMA bytes of every node by direction and by what was moved."""
    layers: dict[str, dict[str, int]] = {}
    for op in program.ops:
        if type(op) is SliceRun:
            continue
        inward = type(op) is Load
        kind = program.buffers[(op.target if inward else op.source).buffer].kind.value
        entry = layers.setdefault(op.node, {})
        key = f"{'in' if inward else 'out'}_{kind}"
        entry[key] = entry.get(key, 0) + op.transfer.nbytes
    return layers
