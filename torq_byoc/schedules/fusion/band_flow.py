"""The pipeline of a fused group: band by band, and in every band node by node.

All slices work on one node at a time, so the nodes of a band are its steps: what a later node reads from outside, its
constants and its program are loaded while the earlier ones run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.flow import NOTHING, Flow
from torq_byoc.schedules.fusion.band_kinds import NodeLoads
from torq_byoc.schedules.slice_costs import SliceCost


class NodeStep(NamedTuple):
    """One step of a band: slice cycles and programs, what it moves, whether every band loads the program anew."""

    cost: SliceCost
    moved: NodeLoads
    reloads: bool


class BandSteps(NamedTuple):
    """Bands that are alike: how many of a run along the inner axis, and their steps in order."""

    times: int
    steps: tuple[NodeStep, ...]


@dataclass(frozen=True)
class GroupFlow:
    """The bands of a group as pipelines.

    Attributes:
        run: the bands of a run along the inner axis, in order.
        runs: how many runs follow one another.
        config: the machine.
        weights: constants of the model.
        overlapping: whether the loads of a band may begin before the band before has ended.
    """

    run: tuple[BandSteps, ...]
    runs: int
    config: NpuConfig
    weights: CostWeights
    overlapping: bool

    def chained(self) -> Flow:
        """The pipeline of all bands, all of their sequencer code loaded."""
        return self._all(1.0)[0]

    def alone(self) -> float:
        """Cycles of the group on its own, its first block of sequencer code in place."""
        _, code = self._all(1.0)
        flow, _ = self._all(max(0.0, code - self.config.nss_block_bytes) / max(code, 1.0))
        return float(flow.through)

    def _all(self, share: float) -> tuple[Flow, float]:
        """The pipeline of all bands with a share of the sequencer code, and bytes of all that code."""
        flow, code = self._run(share, first=True)
        if self.runs > 1:
            again, more = self._run(share, first=False)
            flow = flow.then(again.times(self.runs - 1, overlapping=self.overlapping), overlapping=self.overlapping)
            code += (self.runs - 1) * more
        return flow, code

    def _run(self, share: float, *, first: bool) -> tuple[Flow, float]:
        """The bands of a run along the inner axis; the first run brings what stays, and the programs."""
        flow, code = NOTHING, 0.0
        for number, kind in enumerate(self.run):
            opening, more = self._band(kind, share, turns=not number, stays=first and not number, programs=first)
            flow, code = flow.then(opening, overlapping=self.overlapping or not number), code + more
            if kind.times > 1:
                same, more = self._band(kind, share, turns=False, stays=False, programs=False)
                flow = flow.then(same.times(kind.times - 1, overlapping=self.overlapping), overlapping=self.overlapping)
                code += (kind.times - 1) * more
        return flow, code

    def _band(self, kind: BandSteps, share: float, *, turns: bool, stays: bool, programs: bool) -> tuple[Flow, float]:
        """One band, node by node."""
        rate, rounding = self.config.dma_bytes_per_cycle, self.weights.rounding
        transfer_code, slice_code = self.weights.transfer_code, self.weights.slice_code
        waits = turns and not stays
        steps, code = [], 0.0
        for cost, (flowing, turning, staying, stored), reloads in kind.steps:
            program = programs or reloads
            nbytes = flowing[0] + turns * turning[0] + stays * staying[0] + program * cost.program_bytes
            transfers = flowing[1] + turns * turning[1] + stays * staying[1] + program
            own = transfer_code * (transfers + (stored > 0)) + slice_code * cost.jobs
            load = (nbytes + share * own) / rate + rounding * transfers
            steps.append((load, cost.cycles + waits * turning[0] / rate, stored / rate))
            code += own
        return Flow.of_steps(steps), code
