"""torq_hl passes: each one file, a pure function program -> program, listed once in ``PASSES``."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from torq_byoc.codegen.hl import HlProgram
from torq_byoc.codegen.passes.dead_stores import eliminate_dead_stores
from torq_byoc.codegen.passes.share_loads import share_loads
from torq_byoc.errors import ScheduleError, choose_from

PASSES: tuple[tuple[str, Callable[[HlProgram], HlProgram]], ...] = (
    ("share-loads", share_loads),
    ("dead-stores", eliminate_dead_stores),
)


@dataclass(frozen=True)
class LedgerEntry:
    """What one pass cost and saved: seconds, and the transfers and bytes it took away."""

    name: str
    seconds: float
    saved: dict[str, int]


def pass_names() -> tuple[str, ...]:
    """Names that ``--disable-pass`` takes, in running order."""
    return tuple(name for name, _ in PASSES)


def check_pass_names(names: Collection[str]) -> None:
    """Refuse names that ``--disable-pass`` does not take.

    Raises:
        ScheduleError: one of them is not a pass.
    """
    known = (*pass_names(), "prefetch", "share-programs")
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ScheduleError(
            f"there is no pass named {', '.join(unknown)}",
            where="--disable-pass",
            remedy=choose_from(unknown[0], known),
        )


def run_passes(
    program: HlProgram,
    disabled: Collection[str] = (),
    observe: Callable[[str, HlProgram], None] | None = None,
) -> tuple[HlProgram, tuple[LedgerEntry, ...]]:
    """Run every pass that is not disabled.

    Args:
        program: the naive torq_hl program.
        disabled: names of passes to leave out.
        observe: called with the name and the result of every pass that ran (IR dumps).

    Raises:
        ScheduleError: a disabled name is not a pass.
    """
    check_pass_names(disabled)
    ledger = []
    for name, apply in PASSES:
        if name in disabled:
            continue
        started, before = time.perf_counter(), program.traffic()
        program = apply(program)
        after = program.traffic()
        saved = {key: before[key] - after[key] for key in before}
        ledger.append(LedgerEntry(name, time.perf_counter() - started, saved))
        if observe:
            observe(name, program)
    return program, tuple(ledger)
