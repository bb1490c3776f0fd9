"""The analytic cost of running a segment band by band: cycles, bytes and LRAM demand.

Alone, a group takes as long as its pipeline (``band_flow``).  Among its neighbours its bands are taken for alike, each
of them one step: nodes that follow one another overlap in the same way whether they are fused or not, and the price of
a node beside the next one does not count that either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights, loaded_early, programs_demand, rank_of
from torq_byoc.schedules.flow import Flow
from torq_byoc.schedules.fusion.band_flow import BandSteps, GroupFlow, NodeStep
from torq_byoc.schedules.fusion.division import Division
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.record import GroupDecision
from torq_byoc.schedules.slice_costs import NOTHING_TO_DO, SliceCost

FULL_WITH_PARTS = 0.85
COST_WITH_PARTS = 1.2
"""Bands with parts that take more than this share of the LRAM take so many times their cycles: what comes free between
parts lies in pieces, and what should be loaded early does not fit them."""


@dataclass(frozen=True)
class GroupChoice:
    """A priced decision.

    Attributes:
        decision: how the group is cut and run.
        chained: cycles among its neighbours.
        nbytes, transfers: bytes through DMA, and the cycles they take one by one.
        demand: bytes of LRAM.
        tiles: steps of all bands.
        division, resident: what the decision belongs to, and which tensors are in LRAM as a whole.
        constants, largest, shares: of the first band, as ``chain.Unit`` has them.
        crowding: cycles among ``chained`` that are there because the LRAM is nearly full.
    """

    decision: GroupDecision
    chained: float
    nbytes: float
    transfers: float
    demand: int
    tiles: int
    division: PricedDivision
    resident: frozenset[str]
    constants: float
    largest: float
    shares: tuple[float, ...]
    crowding: float

    @cached_property
    def cycles(self) -> float:
        """Cycles alone."""
        return self.division.alone(self.decision.buffers, self.resident, self.decision.split_axes)

    @property
    def flow(self) -> Flow:
        """Its pipeline with all of its code."""
        return self.division.flow(self.decision.buffers, self.resident, self.decision.split_axes)

    @property
    def along(self) -> int:
        """The axis along which its stores move on, as ``chain.Unit`` has it."""
        return self.decision.axis if self.decision.outer is None else self.decision.outer

    @cached_property
    def rank(self) -> tuple[float, float]:
        """What the search minimises (see ``cost_model.Cost.rank``)."""
        return (float(rank_of(self.chained, self.tiles, self.transfers)), self.nbytes)

    def crowded(self, share: float) -> GroupChoice:
        """The same decision, that share of its cycles dearer."""
        more = share * self.chained
        return replace(self, chained=self.chained + more, crowding=self.crowding + more)


class PricedDivision:
    """The prices of a division; they differ in buffering, slice splits and what is resident."""

    def __init__(self, division: Division, config: NpuConfig, weights: CostWeights) -> None:
        self.division, self.segment, self.config, self.weights = division, division.segment, config, weights
        self._work: dict[tuple[tuple[int | None, ...], frozenset[str]], _Work] = {}
        self._flows: dict[tuple[int, frozenset[str], tuple[int | None, ...]], Flow] = {}

    def choice(
        self, buffers: int, resident: frozenset[str], split_axes: tuple[int | None, ...] | None = None
    ) -> GroupChoice:
        """Price this division with a buffering depth."""
        axes = split_axes or self.split_axes
        work, division, traffic = self._slices(axes, resident), self.division, self.division.traffic(resident)
        fixed = max(one.staying for one in traffic)
        again = (division.runs - 1) * max(one.turning for one in traffic)
        loaded = again + sum((one.flowing + one.parted) * one.times for one in traffic)
        stored = sum(one.stored * one.times for one in traffic)
        rate, count = self.config.dma_bytes_per_cycle, division.count
        code = self.weights.transfer_code * (division.transfers(resident) + work.programs)
        code += self.weights.slice_code * work.jobs
        into, out = (fixed + loaded + work.program_bytes + code) / rate, stored / rate
        fill = (fixed + traffic[0].flowing + traffic[0].part + work.program_bytes / count) / rate
        slices = work.cycles + again / rate
        flow = Flow.step(into, slices, out)
        if buffers == 2:
            flow = Flow.evenly(into, slices, out, fill, traffic[-1].stored / rate, count)
        demand = self.demand(buffers, resident) + programs_demand(work.program_peak, self.config)
        constants = fill - traffic[0].data / rate
        early = loaded_early(constants, demand, self.config)
        names = tuple(node.name for node in self.segment.nodes)
        cut = division.cut
        decision = GroupDecision(names, cut.axis, cut.size, axes, buffers, cut.outer, cut.parts)
        nbytes = fixed + loaded + work.program_bytes + stored
        crowded = cut.parts is not None and demand > FULL_WITH_PARTS * self.config.lram_usable
        chained = float(flow.after(early))
        crowding = (COST_WITH_PARTS - 1) * chained if crowded else 0.0
        return GroupChoice(
            decision,
            chained + crowding,
            nbytes,
            nbytes / rate,
            demand,
            work.tiles,
            self,
            resident,
            constants,
            division.largest_constants / rate,
            division.first_shares(resident),
            crowding,
        )

    def demand(self, buffers: int, resident: frozenset[str]) -> int:
        """LRAM bytes without programs (see ``Division.demand``)."""
        return self.division.demand(buffers, resident, self.config.lram_word)

    def alone(self, buffers: int, resident: frozenset[str], axes: tuple[int | None, ...]) -> float:
        """Cycles of a decision when it has the LRAM to itself."""
        work, room = self._slices(axes, resident), self.config.lram_usable
        overlapping = buffers == 2 or self.demand(2, resident) + programs_demand(work.program_peak, self.config) <= room
        return self._group(work, resident, overlapping=overlapping).alone()

    def flow(self, buffers: int, resident: frozenset[str], axes: tuple[int | None, ...]) -> Flow:
        """The pipeline of a decision among its neighbours."""
        key = (buffers, resident, axes)
        if key not in self._flows:
            self._flows[key] = self._group(self._slices(axes, resident), resident, overlapping=buffers == 2).chained()
        return self._flows[key]

    def _group(self, work: _Work, resident: frozenset[str], *, overlapping: bool) -> GroupFlow:
        return GroupFlow(self._steps(work, resident), self.division.runs, self.config, self.weights, overlapping)

    def _steps(self, work: _Work, resident: frozenset[str]) -> tuple[BandSteps, ...]:
        """The bands of a run, step by step."""
        division = self.division
        return tuple(
            BandSteps(kind.times // division.runs, tuple(map(NodeStep, costs, loads, self._reloads(resident))))
            for kind, costs, loads in zip(division.kinds, work.costs, division.node_loads(resident), strict=True)
        )

    def _reloads(self, resident: frozenset[str]) -> list[bool]:
        """For every step of a band whether each band loads its program anew."""
        in_place = self.division.in_place(resident)
        return [
            position not in in_place and self._program_loads(position, 2) == 2
            for position, _ in self.division.middle.steps
        ]

    @cached_property
    def split_axes(self) -> tuple[int | None, ...]:
        """For every node the axis that divides it best between the slices, judged by the middle band."""
        first = dict(reversed(self.division.middle.steps))
        return tuple(self._split_axis(index, first[index]) for index in range(len(self.segment.nodes)))

    def _split_axis(self, index: int, output: Region) -> int | None:
        """The most even axis; None where loading the further slices' programs takes longer than they save."""
        model, count = self.segment.models[index], self.division.count
        axis = model.even_split(output)
        if axis is None:
            return None
        cost = model.tile_cost(output, axis, model.streamed)
        loading = self._program_loads(index, count) * cost.program_bytes / self.config.dma_bytes_per_cycle
        return axis if cost.cycles * count * cost.jobs >= loading else None

    def _program_loads(self, index: int, bands: int) -> int:
        """Programs that a node loads in so many bands.

        Bands load one each only where the node reads something from outside that lies now here, now there: a tensor, or
        weights that every band loads anew.  What is passed on inside finds the same place in every band, and so the
        program of the band before fits (``share_programs``).
        """
        return bands if index in self.division.reloaded or self.segment.fed[index] else 1

    def _slices(self, axes: tuple[int | None, ...], resident: frozenset[str]) -> _Work:
        """What the bands ask of the slices with these split axes, beside what is resident."""
        key = (axes, resident)
        if key not in self._work:
            self._work[key] = self._summed(*key)
        return self._work[key]

    def _summed(self, axes: tuple[int | None, ...], resident: frozenset[str]) -> _Work:
        cycles = programs = nbytes = peak = jobs = tiles = 0
        found = []
        in_place, residencies = self.division.in_place(resident), self._residencies(resident)
        for kind in self.division.kinds:
            costs = []
            for index, box in kind.steps:
                if index in in_place:
                    costs.append(NOTHING_TO_DO)
                    continue
                model = self.segment.models[index]
                cost = model.tile_cost(box, axes[index], residencies[index])
                loads = self._program_loads(index, kind.times)
                cycles += kind.times * cost.cycles
                programs += loads
                nbytes += loads * cost.program_bytes
                jobs += kind.times * cost.jobs
                tiles += kind.times
                peak = max(peak, cost.program_bytes)
                costs.append(cost)
            found.append(tuple(costs))
        return _Work(tuple(found), cycles, programs, nbytes, peak, jobs, tiles)

    def _residencies(self, resident: frozenset[str]) -> list[Residency]:
        """Which operands of every node lie in LRAM as a whole, whose rows are walked by the strides of that."""
        segment = self.segment
        return [
            Residency(tuple(name in resident for name in names), node.output in resident)
            for node, names in zip(segment.nodes, segment.names, strict=True)
        ]


@dataclass(frozen=True)
class _Work:
    """What the bands ask of the slices: costs of the steps in every kind of band; of all bands cycles, programs that
    are loaded, their bytes and the largest one, slice jobs, tiles."""

    costs: tuple[tuple[SliceCost, ...], ...]
    cycles: int
    programs: int
    program_bytes: int
    program_peak: int
    jobs: int
    tiles: int
