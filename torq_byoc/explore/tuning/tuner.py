"""The search over one graph: trials, the best schedule so far, and what led to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.explore.tuning.space import Point, Space
from torq_byoc.explore.tuning.strategy import Strategy
from torq_byoc.explore.tuning.subject import Subject
from torq_byoc.explore.tuning.workload import Measured, Workload
from torq_byoc.schedules.record import DecisionRecord

ROUND = 32
"""Trials in one space; the next space lies around the best schedule so far, when that is a new one."""
REPEATS = 64
"""Proposals in a row that were measured before, after which a space counts as searched."""


@dataclass(frozen=True)
class Budget:
    """When to stop.

    Attributes:
        trials: schedules measured beside the default; those that do not fit count.
        deadline: on ``time.monotonic``; None has no limit.
    """

    trials: int
    deadline: float | None = None

    def spent(self, trials: int) -> bool:
        """Whether the search is over."""
        return trials >= self.trials or (self.deadline is not None and time.monotonic() >= self.deadline)


@dataclass(frozen=True)
class Improvement:
    """A trial better than all before it: its number, its cycles, and what it changed in the best one before."""

    trial: int
    cycles: int
    changes: tuple[str, ...]


@dataclass
class Search:
    """The state of a search; what it holds at the end is the result.

    Attributes:
        default: the schedule of the analytic search, trial 0.
        best: the best schedule so far.
        trials: schedules measured beside the default.
        infeasible: those among them that did not fit or did not apply.
        improvements: in the order in which they were found.
    """

    default: Measured
    best: Measured
    trials: int = 0
    infeasible: int = 0
    improvements: list[Improvement] = field(default_factory=list)


def tune(
    workload: Workload,
    strategy: type[Strategy],
    budget: Budget,
    seed: int,
    *,
    starts: Callable[[DecisionRecord], Sequence[tuple[str, DecisionRecord]]] = lambda default: (),
    report: Callable[[Search], None] = lambda search: None,
) -> Search:
    """Search for a better schedule of a graph than the default one.

    Args:
        workload: the graph.
        strategy: how to search.
        budget: when to stop.
        seed: of the strategy.
        starts: given the default record, other records to begin with, whatever the budget, and what they are, in words.
        report: called after every trial.

    Raises:
        LramOverflowError, ScheduleError: there is no default schedule.
    """
    default = workload.measure(None)
    search = Search(default, default)
    report(search)
    for words, record in starts(default.record):
        _try(workload, search, record, (words,))
        report(search)
    subject: Subject | None = None
    for number in range(budget.trials):
        if budget.spent(search.trials):
            break
        slices = search.best.record.slices
        if subject is None or subject.slices != slices:
            subject = Subject(workload.graph, workload.options.config, slices)
        space = Space(subject, search.best.record, search.best.estimates)
        if not space.knobs or not _round(workload, search, space, strategy, budget, seed + number, report):
            break
    return search


def _round(
    workload: Workload,
    search: Search,
    space: Space,
    strategy: type[Strategy],
    budget: Budget,
    seed: int,
    report: Callable[[Search], None],
) -> bool:
    """Search one space until its best point is worth a space of its own; False when nothing is left to try."""
    base, best = search.best, space.origin
    known: dict[Point, int | None] = {space.origin: base.cycles}
    guide = strategy(space, base.cycles, seed)
    for tried, point in enumerate(_fresh(guide, known), start=1):
        measured = _try(workload, search, space.record(point), space.changes(point, best))
        known[point] = measured.cycles if measured else None
        best = point if measured is search.best else best
        guide.observe(point, known[point])
        report(search)
        if budget.spent(search.trials) or (tried >= ROUND and search.best is not base):
            return True
    return search.best is not base


def _fresh(guide: Strategy, known: dict[Point, int | None]) -> Iterator[Point]:
    """Proposals that were not measured yet; the strategy is told again about the others."""
    repeats = 0
    while repeats < REPEATS:
        point = guide.propose()
        if point in known:
            guide.observe(point, known[point])
            repeats += 1
        else:
            repeats = 0
            yield point


def _try(workload: Workload, search: Search, record: DecisionRecord, changes: tuple[str, ...]) -> Measured | None:
    """Measure a record; None when it does not fit or does not apply."""
    search.trials += 1
    try:
        measured = workload.measure(record)
    except (ScheduleError, LramOverflowError):
        search.infeasible += 1
        return None
    if measured.cycles < search.best.cycles:
        search.best = measured
        search.improvements.append(Improvement(search.trials, measured.cycles, changes))
    return measured
