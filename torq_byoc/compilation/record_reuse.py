"""Tuning records in a compilation: which partition uses one, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torq_byoc.compilation.options import Options
from torq_byoc.compilation.tuning_records import GraphEntry
from torq_byoc.compiled_model import Partition
from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.record import DecisionRecord


@dataclass(frozen=True)
class Reuse:
    """What the tuning records mean for one partition.

    Attributes:
        options: the request, with the record's decisions where one applies.
        entry: the record that applies.
        note: what a user is told.
    """

    options: Options
    entry: GraphEntry | None = None
    note: str = ""

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Say of a failure inside the block that it is the tuning record's.

        Raises:
            ScheduleError: the record does not apply to the graph or the machine of its own key.
        """
        try:
            yield
        except (ScheduleError, LramOverflowError) as error:
            if self.entry is None:
                raise
            raise ScheduleError(
                "a tuning record does not apply to the graph it is filed under",
                where=error.where,
                why=f"{error.what}: {error.why}" if error.why else error.what,
                remedy="tune the model again, or compile without the records",
            ) from error


def reuse(symbol: str, graph: OpGraph, options: Options) -> Reuse:
    """Look a partition up.

    Args:
        symbol: its name, for notes.
        graph: its operators.
        options: the request.

    Raises:
        ScheduleError: its record is damaged.
    """
    if options.records is None:
        return Reuse(options)
    if _decided_by_hand(options, graph):
        return Reuse(options, note=f"{symbol}: the schedule fixed by hand counts, tuning records are not looked at")
    entry = options.records.entry(options.config, graph)
    if entry is None:
        known = options.records.machine(options.config) is not None
        missing = "this graph" if known else f"the machine {options.config.name}"
        return Reuse(options, note=f"{symbol}: the tuning records know nothing of {missing}, the search decides")
    note = (
        f"{symbol}: decided by a tuning record of {entry.model}: {entry.cycles} cycles in profile {entry.profile}, "
        f"{entry.default_cycles} by default"
    )
    return Reuse(replace(options, decisions=entry.decisions(graph)), entry, note)


def reuse_notes(reuses: Sequence[Reuse], partitions: Sequence[Partition]) -> tuple[str, ...]:
    """What a user is told about the tuning records, a broken promise among it."""
    notes = [found.note for found in reuses if found.note]
    for found, partition in zip(reuses, partitions, strict=True):
        if found.entry is None:
            continue
        cycles = simulate_timeline(partition.program, found.entry.profile).total_cycles
        if cycles != found.entry.cycles:
            notes.append(
                f"{partition.facts.symbol}: {cycles} cycles instead of the {found.entry.cycles} of its tuning record, "
                "which was made by another version or with other passes: tune again"
            )
    return tuple(notes)


def _decided_by_hand(options: Options, graph: OpGraph) -> bool:
    if options.decisions is None:
        return False
    own = options.decisions.restricted_to({node.name for node in graph.nodes}, graph.tensors)
    return own != DecisionRecord()
