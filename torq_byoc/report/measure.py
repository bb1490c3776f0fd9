"""The timelines of a compiled model, simulated once and shared by every report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torq_byoc.compiled_model import CompiledModel, Partition
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.timing import Timeline, simulate_timeline
from torq_byoc.report.flows import Flow, follow_flows
from torq_byoc.report.lram import LramUse, follow_lram


@dataclass(frozen=True, eq=False)
class Measurement:
    """A model under one timing profile.  Partitions run one after the other.

    Attributes:
        timelines: one a partition, each from cycle 0.
    """

    model: CompiledModel
    profile: str
    timelines: tuple[Timeline, ...]

    @property
    def config(self) -> NpuConfig | None:
        """The machine; None when nothing runs on it."""
        return self.model.partitions[0].program.config if self.model.partitions else None

    @property
    def total_cycles(self) -> int:
        """Cycles of all partitions."""
        return sum(timeline.total_cycles for timeline in self.timelines)

    def parts(self) -> Iterator[tuple[Partition, Timeline]]:
        """Partitions with their timelines, in order."""
        return zip(self.model.partitions, self.timelines, strict=True)

    def busy(self, track: str) -> int:
        """Busy cycles of one engine ("dma_in", "slice0", ...) over all partitions."""
        return sum(timeline.busy.get(track, 0) for timeline in self.timelines)

    @cached_property
    def lram(self) -> tuple[LramUse, ...]:
        """What each partition keeps in LRAM over time."""
        return tuple(follow_lram(partition.program, timeline) for partition, timeline in self.parts())

    @cached_property
    def flows(self) -> tuple[tuple[Flow, ...], ...]:
        """Which job's bytes each job of each partition uses."""
        return tuple(follow_flows(partition.program) for partition in self.model.partitions)


def measure(model: CompiledModel, profile: str = "reference") -> Measurement:
    """Simulate the timelines of all partitions.

    Args:
        model: freshly compiled or loaded.
        profile: "reference", "shared" or "pessimistic".

    Raises:
        ProgramFormatError, VerificationError: a program of a loaded container is damaged or unsafe.
    """
    timelines = tuple(simulate_timeline(partition.program, profile) for partition in model.partitions)
    return Measurement(model, profile, timelines)
