"""One graph on one machine: what a decision record is worth, compiled and simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.programs import compile_graph
from torq_byoc.compilation.record_keys import Setting
from torq_byoc.compilation.rivals import fastest_candidate
from torq_byoc.compiled_model import Partition
from torq_byoc.errors import InternalError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.record import DecisionRecord


@dataclass(frozen=True)
class Measured:
    """A schedule that was compiled and simulated.

    Attributes:
        record: its decisions, complete.
        cycles: simulated.
        estimates: node name -> cycles that the cost model expects; says where the time goes.
    """

    record: DecisionRecord
    cycles: int
    estimates: Mapping[str, float]


@dataclass(frozen=True)
class Workload:
    """A graph to be tuned.

    Attributes:
        symbol: name of its partition.
        graph: its operators.
        options: machine, effort and passes of the compilations; decisions fixed by hand stay fixed.
        profile: timing profile of the cycles.
    """

    symbol: str
    graph: OpGraph
    options: Options
    profile: str

    @property
    def setting(self) -> Setting:
        """What its records hold for."""
        return Setting.of(self.profile, self.options.disabled_passes)

    def measure(self, record: DecisionRecord | None) -> Measured:
        """Compile and simulate a record; None is the search's own schedule.

        Raises:
            ScheduleError, LramOverflowError: the record does not apply, or does not fit.
        """
        found = fastest_candidate(self.graph, self._options(record), StageClock())
        cycles = simulate_timeline(found.generated.program, self.profile).total_cycles
        return Measured(found.schedule.record, cycles, {entry.node: entry.estimate for entry in found.schedule.nodes})

    def verified(self, found: Measured) -> Partition:
        """The program of a measured schedule, compiled anew from its record and verified.

        Raises:
            VerificationError, InternalError: a defect of ours: it is not safe, or takes other cycles than before.
        """
        partition = compile_graph(self.symbol, self.graph, self._options(found.record))
        cycles = simulate_timeline(partition.program, self.profile).total_cycles
        if cycles != found.cycles:
            raise InternalError(
                "a decision record does not give the schedule that it was read from",
                where=self.symbol,
                why=f"{cycles} cycles, {found.cycles} when it was found",
                remedy="report it with the model",
            )
        return partition

    def _options(self, record: DecisionRecord | None) -> Options:
        return replace(self.options, decisions=record, records=None, observe=None, progress=None)
