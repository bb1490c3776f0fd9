"""The codegen stage as a whole: torq_hl, its passes, order, addresses, machine program."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from torq_byoc.codegen.allocation import Request
from torq_byoc.codegen.build import build
from torq_byoc.codegen.clean_copies import Copy, clean_copies
from torq_byoc.codegen.hl import CallProgram, Load, RunProgram, SliceRun
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
from torq_byoc.codegen.prefetch import PUNCTUAL, OrderedProgram, order
from torq_byoc.codegen.programs import with_programs
from torq_byoc.codegen.share_programs import share_programs, slice_programs
from torq_byoc.errors import LramOverflowError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.timing import Timeline, simulate_timeline
from torq_byoc.schedules.plan import Schedule

FEW_OPS = 1000
"""Loads, stores and slice programs up to which a second order of loads takes no time to try."""
LONG_WAITS = 0.005
"""Share of the time spent waiting for stores from which on larger programs are worth it."""


@dataclass(frozen=True)
class GeneratedProgram:
    """The machine program of one partition with what the reports need: ``lram_requests`` are sizes and lifetimes of
    all LRAM buffers, ``timeline`` is the program's in the reference profile."""

    program: Program
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
"""Passes by which buffers live longer than the schedule counts on: given up where there is no room for that."""


@dataclass(frozen=True)
class _Finished:
    """A program with what it was on the way: names of levels and their torq_hl."""

    generated: GeneratedProgram
    levels: tuple[tuple[str, RunProgram], ...]


@dataclass(frozen=True)
class _Generator:
    """From naive torq_hl to the machine program, step by step."""

    graph: OpGraph
    config: NpuConfig
    observe: Callable[[str, CallProgram | RunProgram], None]

    def run(
        self, naive: CallProgram, passes: Sequence[tuple[str, Pass]], disabled: Collection[str]
    ) -> GeneratedProgram:
        """Improve, cut into programs, and finish in the order of loads that simulates faster."""
        improved, ledger = run_passes(naive, passes, disabled, self.observe)
        program = with_programs(improved, self.graph, self.config)
        allowed = Early("prefetch" not in disabled, "double-buffering" not in disabled)
        chosen = self._finished(program, ledger, allowed, disabled)
        timeline = chosen.generated.timeline
        if allowed.across_nodes and (len(program.ops) <= FEW_OPS or _waiting(timeline) >= LONG_WAITS):
            rival = self._finished(program, ledger, replace(allowed, into_gaps=True), disabled)
            if rival.generated.timeline.total_cycles < timeline.total_cycles:
                chosen = rival
        for name, level in chosen.levels:
            self.observe(name, level)
        return chosen.generated

    def _finished(
        self, program: RunProgram, ledger: Sequence[LedgerEntry], early: Early, disabled: Collection[str]
    ) -> _Finished:
        """Order, share programs, lower."""
        ordered, ordering = self._ordered(program, early, disabled)
        levels = [("order", ordered.program)]
        images = slice_programs(ordered, self.graph, self.config)
        sharing: list[LedgerEntry] = []
        if "share-programs" not in disabled:
            started, before = time.perf_counter(), ordered.program.traffic()
            ordered = share_programs(ordered, images)
            saved = saving(before, ordered.program.traffic())
            sharing.append(LedgerEntry("share-programs", time.perf_counter() - started, saved))
            levels.append(("share-programs", ordered.program))
        memory = memory_map(ordered, self.config)
        machine = lower(ordered.program, memory, images, self.graph, self.config)
        entries = {entry.name: entry for entry in (*ledger, *ordering, *sharing)}
        reported = tuple(entries[name] for name in NAMES if name in entries and name not in disabled)
        layers = _layer_bytes(ordered.program)
        generated = GeneratedProgram(
            machine, simulate_timeline(machine), memory.lram_peak, memory.lram_requests, reported, layers
        )
        return _Finished(generated, tuple(levels))

    def _ordered(
        self, program: RunProgram, early: Early, disabled: Collection[str]
    ) -> tuple[OrderedProgram, tuple[LedgerEntry, ...]]:
        """The final order, and what it owes to whom."""
        started = time.perf_counter()
        ordered = _fit(program, self.config, early, {} if "clean-copies" in disabled else clean_copies(program))
        seconds = time.perf_counter() - started
        return ordered, (
            LedgerEntry("slice-split", 0.0, _side_by_side(program)),
            LedgerEntry("clean-copies", 0.0, saving(program.traffic(), ordered.program.traffic())),
            LedgerEntry("double-buffering", 0.0, ordered.ahead.across_tiles),
            LedgerEntry("prefetch", seconds, ordered.ahead.across_nodes),
        )


def _waiting(timeline: Timeline) -> float:
    """Share of the time in which neither a slice nor the channel into LRAM works: stores are waited for."""
    events = [event for event in timeline.events if event.track.startswith("slice") or event.track == "dma_in"]
    end = idle = 0
    for event in sorted(events, key=lambda event: event.start):
        idle += max(0, event.start - end)
        end = max(end, event.end)
    return (idle + timeline.total_cycles - end) / max(1, timeline.total_cycles)


def _side_by_side(program: RunProgram) -> dict[str, int]:
    """Cycles that slices work beside the busiest one of their step."""
    steps: dict[int, list[int]] = {}
    for op in program.ops:
        if isinstance(op, SliceRun):
            steps.setdefault(op.step, []).append(op.cycles)
    return {"slice_cycles": sum(sum(cycles) - max(cycles) for cycles in steps.values())}


def _fit(program: RunProgram, config: NpuConfig, allowed: Early, copies: Mapping[int, Copy]) -> OrderedProgram:
    """The most ambitious order whose buffers all find room."""
    for early in dict.fromkeys((allowed, replace(allowed, into_gaps=False), PUNCTUAL)):
        ordered = order(program, config.lram_usable, config.lram_word, early, copies)
        if ordered is not None:
            return ordered
    raise LramOverflowError(
        "the tiles of this schedule cannot be laid out in LRAM together",
        where=f"{config.name}, {config.lram_usable} usable bytes",
        why="even without prefetching the buffers alive in one step leave no large enough gap",
        remedy="schedule with a smaller budget, or choose a machine with more LRAM",
    )


def _layer_bytes(program: RunProgram) -> dict[str, dict[str, int]]:
    """DMA bytes of every node by direction and by what was moved."""
    layers: dict[str, dict[str, int]] = {}
    for op in program.ops:
        if isinstance(op, SliceRun):
            continue
        inward = isinstance(op, Load)
        kind = program.buffers[(op.target if inward else op.source).buffer].kind.value
        entry = layers.setdefault(op.node, {})
        key = f"{'in' if inward else 'out'}_{kind}"
        entry[key] = entry.get(key, 0) + op.transfer.nbytes
    return layers
