"""The codegen stage as a whole: torq_hl, its passes, order, addresses, machine program."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torq_byoc.codegen.build import build
from torq_byoc.codegen.hl import HlProgram, Load, SliceRun
from torq_byoc.codegen.lower import lower
from torq_byoc.codegen.memory import memory_map
from torq_byoc.codegen.passes import LedgerEntry, run_passes
from torq_byoc.codegen.prefetch import OrderedProgram, order
from torq_byoc.codegen.share_programs import share_programs, slice_programs
from torq_byoc.errors import LramOverflowError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.program import Program
from torq_byoc.schedules.plan import Schedule


@dataclass(frozen=True)
class GeneratedProgram:
    """The machine program of one partition with what the reports need."""

    program: Program
    lram_peak: int
    ledger: tuple[LedgerEntry, ...]
    layer_bytes: dict[str, dict[str, int]]


def generate(
    graph: OpGraph,
    schedule: Schedule,
    config: NpuConfig,
    *,
    disabled: Collection[str] = (),
    observe: Callable[[str, HlProgram], None] | None = None,
) -> GeneratedProgram:
    """Generate the machine program of a scheduled graph.

    Args:
        graph: the operators.
        schedule: decisions for every node.
        config: the machine.
        disabled: torq_hl passes to leave out (``prefetch`` and ``share-programs`` among them).
        observe: called with (pass name, program) after each pass.

    Raises:
        LramOverflowError: no order of loads lets the buffers be laid out.
        ScheduleError: a disabled pass does not exist.
    """
    naive = build(graph, schedule, config)
    if observe:
        observe("build", naive)
    program, ledger = run_passes(naive, disabled, observe)
    started = time.perf_counter()
    ordered = _fit(program, config, hoist="prefetch" not in disabled)
    if observe:
        observe("prefetch", ordered.program)
    ledger = (*ledger, LedgerEntry("prefetch", time.perf_counter() - started, {}))
    images = slice_programs(ordered, graph, config)
    if "share-programs" not in disabled:
        started, before = time.perf_counter(), ordered.program.traffic()
        ordered = share_programs(ordered, images)
        ledger = (*ledger, LedgerEntry("share-programs", time.perf_counter() - started, _saved(before, ordered)))
        if observe:
            observe("share-programs", ordered.program)
    memory = memory_map(ordered, config)
    machine = lower(ordered.program, memory, images, graph, config)
    return GeneratedProgram(machine, memory.lram_peak, ledger, _layer_bytes(ordered.program))


def _saved(before: Mapping[str, int], ordered: OrderedProgram) -> dict[str, int]:
    after = ordered.program.traffic()
    return {key: before[key] - after[key] for key in before}


def _fit(program: HlProgram, config: NpuConfig, *, hoist: bool) -> OrderedProgram:
    """The most ambitious order whose buffers all find room."""
    for early in (True, False) if hoist else (False,):
        ordered = order(program, config.lram_usable, config.lram_word, hoist=early)
        if ordered is not None:
            return ordered
    raise LramOverflowError(
        "the tiles of this schedule cannot be laid out in LRAM together",
        where=f"{config.name}, {config.lram_usable} usable bytes",
        why="even without prefetching the buffers alive in one step leave no large enough gap",
        remedy="schedule with a smaller budget, or choose a machine with more LRAM",
    )


def _layer_bytes(program: HlProgram) -> dict[str, dict[str, int]]:
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
