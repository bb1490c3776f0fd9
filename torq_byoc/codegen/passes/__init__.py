"""torq_hl passes: each one file, a pure function program -> program, listed once, in running order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from torq_byoc.codegen.hl import CallProgram
from torq_byoc.codegen.passes.dead_stores import eliminate_dead_stores
from torq_byoc.codegen.passes.hand_over import HandOver
from torq_byoc.codegen.passes.in_place import in_place
from torq_byoc.codegen.passes.loop_invariant import hoist_loop_invariant
from torq_byoc.codegen.passes.residency import KeepResident
from torq_byoc.codegen.passes.share_slices import share_slices
from torq_byoc.errors import ScheduleError, require_known
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.scheduled import Schedule

Pass = Callable[[CallProgram], CallProgram]
NAMES = (
    "slice-split",
    "share-slices",
    "residency",
    "fusion",
    "in-place",
    "loop-invariant",
    "dead-stores",
    "clean-copies",
    "double-buffering",
    "prefetch",
    "share-programs",
)
"""Everything that ``--disable-pass`` takes: what the schedule decides (``schedules.techniques``), the passes of this
package, and what is done once programs are known, in the order in which it takes effect."""


@dataclass(frozen=True)
class LedgerEntry:
    """What one pass cost and saved: seconds, and the transfers, bytes and kernel calls it took away."""

    name: str
    seconds: float
    saved: dict[str, int]


def passes_for(schedule: Schedule, config: NpuConfig) -> tuple[tuple[str, Pass], ...]:
    """The passes of this package with their names, in running order.

    Args:
        schedule: says what is to stay in LRAM.
        config: the machine.
    """
    return (
        ("share-slices", share_slices),
        ("residency", KeepResident(schedule.resident)),
        ("fusion", HandOver(config)),
        ("in-place", in_place),
        ("loop-invariant", hoist_loop_invariant),
        ("dead-stores", eliminate_dead_stores),
    )


def check_pass_names(names: Collection[str]) -> None:
    """Refuse names that ``--disable-pass`` does not take.

    Raises:
        ScheduleError: one of them is not a pass.
    """
    require_known(ScheduleError, "pass", names, NAMES, where="--disable-pass")


def run_passes(
    program: CallProgram,
    passes: Iterable[tuple[str, Pass]],
    disabled: Collection[str] = (),
    observe: Callable[[str, CallProgram], None] | None = None,
) -> tuple[CallProgram, tuple[LedgerEntry, ...]]:
    """Run every pass that is not disabled.

    Args:
        program: the naive torq_hl program.
        passes: names and passes, in order.
        disabled: names of passes to leave out.
        observe: called with the name and the result of every pass that ran (IR dumps).
    """
    ledger = []
    for name, apply in passes:
        if name in disabled:
            continue
        started = time.perf_counter()
        before, program = program, apply(program)
        saved = saving(before.traffic, program.traffic)
        ledger.append(LedgerEntry(name, time.perf_counter() - started, saved))
        if observe:
            observe(name, program)
    return program, tuple(ledger)


def saving(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What went away between two traffic counts (``CallProgram.traffic``)."""
    return {key: before[key] - after[key] for key in before}
