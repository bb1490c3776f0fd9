"""The analytic cost of running a segment band by band: cycles, bytes and LRAM demand.

Bands between the first and the last are alike, so three of them price a group.  All slices work on one node of
one band at a time; transfers of neighbouring bands overlap with that as in ``cost_model.Stages``.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules import candidates
from torq_byoc.schedules.cost_model import CostWeights, Stages, has_neighbours_room, rank_of
from torq_byoc.schedules.fusion.bands import Band, band, band_count
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.node_model import NodeModel, Residency
from torq_byoc.schedules.record import GroupDecision
from torq_byoc.schedules.techniques import ALL, Techniques

MAX_BANDS = 64
_PRICED = 8
"""Band sizes priced from the largest one that fits."""
_PATIENCE = 3
"""Sizes in a row that cost more than the best one before the search along an axis ends."""


@dataclass(frozen=True)
class GroupChoice:
    """A priced decision: cycles alone and among its neighbours, bytes through DMA and the cycles they take one by one,
    LRAM demand, tiles."""

    decision: GroupDecision
    cycles: float
    chained: float
    nbytes: float
    transfers: float
    demand: int
    tiles: int

    @property
    def rank(self) -> tuple[float, float]:
        """What the search minimises (see ``cost_model.Cost.rank``)."""
        return (float(rank_of(self.chained, self.tiles, self.transfers)), self.nbytes)


class GroupSpace:
    """All decisions of one segment.

    Args:
        segment: the nodes.
        config: the machine.
        weights: constants of the cost model.
        techniques: what decisions may make use of.
    """

    def __init__(self, segment: Segment, config: NpuConfig, weights: CostWeights, techniques: Techniques = ALL) -> None:
        self.segment, self.config, self.weights, self.techniques = segment, config, weights, techniques
        self._divisions: dict[tuple[int, int], _Division | None] = {}
        self._answers: dict[tuple[int, frozenset[str]], GroupChoice | None] = {}

    def best(self, available: int, resident: frozenset[str]) -> GroupChoice | None:
        """The cheapest decision that fits ``available`` bytes beside the resident tensors; None when none does.

        Args:
            available: bytes of LRAM for everything that is not resident.
            resident: names of the segment's sources and outputs that lie in LRAM as a whole.
        """
        key = (available, resident)
        if key not in self._answers:
            found = [choice for axis in self._axes() for choice in self._along(axis, available, resident)]
            self._answers[key] = min(found, key=lambda choice: choice.rank, default=None)
        return self._answers[key]

    def priced(self, decision: GroupDecision, resident: frozenset[str]) -> GroupChoice | None:
        """A given decision; None when the segment cannot be divided so."""
        division = self._division(decision.axis, decision.size)
        if division is None:
            return None
        return division.choice(decision.buffers, resident, decision.split_axes)

    def _split_axes(self) -> tuple[int | None, ...] | None:
        """One slice for every node where no node may be divided; None leaves it to the division."""
        return None if self.techniques.slice_split else (None,) * len(self.segment.nodes)

    def _axes(self) -> list[int]:
        """Axes of the last output that are worth cutting: rows, channels; columns of a plane never."""
        last = self.segment.last
        rank = len(last.shape)
        axes = [axis for axis in range(rank) if last.steps[axis] and last.shape[axis] > last.steps[axis]]
        planar = rank >= 4 and any(model.kernel.reads_whole_rows for model in self.segment.models)
        return [axis for axis in reversed(axes) if not planar or axis < rank - 1]

    def _along(self, axis: int, available: int, resident: frozenset[str]) -> Iterator[GroupChoice]:
        """Choices that cut one axis: from the largest band that fits to smaller ones, while they promise something."""
        last = self.segment.last
        sizes = [
            size
            for size in candidates.axis_extents(last.shape[axis], last.steps[axis])
            if band_count(self.segment, axis, size) <= MAX_BANDS
        ]
        finest = self._division(axis, sizes[-1]) if sizes else None
        if finest is None or finest.staying(resident) > available:
            return

        def fits(size: int) -> bool:
            division = self._division(axis, size)
            return division is not None and division.demand(1, resident) <= available

        best, worse = float("inf"), 0
        for size in sizes[bisect.bisect_left(sizes, True, key=fits) :][:_PRICED]:
            division = self._division(axis, size)
            if division is None:
                return
            deep = self.techniques.double_buffering and division.demand(2, resident) <= available
            choice = division.choice(2 if deep else 1, resident, self._split_axes())
            if choice.demand <= available:
                yield choice
            worse = worse + 1 if choice.rank[0] > best else 0
            best = min(best, choice.rank[0])
            if worse == _PATIENCE:
                return

    def _division(self, axis: int, size: int) -> _Division | None:
        key = (axis, size)
        if key not in self._divisions:
            self._divisions[key] = _Division.of(self.segment, axis, size, self.config, self.weights)
        return self._divisions[key]


@dataclass(frozen=True)
class _Operand:
    """Something a band loads: the tensor's name, None for a constant; bytes; whether each band loads its own."""

    name: str | None
    nbytes: int
    moves: bool


@dataclass(frozen=True)
class _BandFacts:
    """What a band loads, makes and passes on, whatever is resident.

    Attributes:
        times: bands like this one.
        operands: what it loads.
        results: bytes of every output of the segment.
        passed: internal tensors that lie in LRAM while each node runs, and their bytes.
    """

    times: int
    operands: tuple[_Operand, ...]
    results: Mapping[str, int]
    passed: tuple[tuple[tuple[str, int], ...], ...]

    def loaded(self, resident: frozenset[str], moves: bool) -> list[int]:
        """Bytes of the operands that come from XRAM, those of every band or those of the whole group."""
        return [operand.nbytes for operand in self.operands if operand.moves is moves and operand.name not in resident]

    def first_data(self, resident: frozenset[str]) -> int:
        """Bytes of tensors that come from XRAM, constants left out."""
        return sum(o.nbytes for o in self.operands if o.name is not None and o.name not in resident)

    def stored(self, resident: frozenset[str]) -> list[int]:
        """Bytes of the results that go to XRAM."""
        return [nbytes for name, nbytes in self.results.items() if name not in resident]


class _Division:
    """A segment cut into bands along one axis."""

    def __init__(
        self,
        segment: Segment,
        axis: int,
        size: int,
        bands: list[tuple[Band, int]],
        config: NpuConfig,
        weights: CostWeights,
    ) -> None:
        self.segment, self.axis, self.size, self.bands = segment, axis, size, bands
        self.config, self.weights = config, weights
        self.count = sum(times for _, times in bands)
        self._sources, self._results = sorted(segment.sources), sorted(segment.outputs)
        self._choices: dict[tuple[int, frozenset[str], tuple[int | None, ...] | None], GroupChoice] = {}
        self._work: dict[tuple[int | None, ...], tuple[float, int, int, int, int]] = {}

    @classmethod
    def of(cls, segment: Segment, axis: int, size: int, config: NpuConfig, weights: CostWeights) -> _Division | None:
        """The division, or None when some tensor cannot be divided so.

        Whether a band is a box under every shape depends on where it lies, so with reshapes all bands are looked at.
        """
        count = band_count(segment, axis, size)
        wanted = {0: 1, count - 1: 1} | ({count // 2: count - 2} if count > 2 else {})
        others = dict.fromkeys(range(count), 0) if segment.reshapes else {}
        bands = []
        for index, times in sorted({**others, **wanted}.items()):
            found = band(segment, axis, size, index, lambda position, box: segment.models[position].input_regions(box))
            if found is None or None in found.outputs:
                return None  # bands in which different nodes work are not alike: three of them price nothing
            if times:
                bands.append((found, times))
        return cls(segment, axis, size, bands, config, weights)

    def staying(self, resident: frozenset[str]) -> int:
        """LRAM bytes that no division into smaller bands saves: what all bands share."""
        return min(sum(facts.loaded(resident, False)) for facts in self.facts) if self.count > 1 else 0

    def demand(self, buffers: int, resident: frozenset[str]) -> int:
        """LRAM bytes without programs: operands that stay, operands and results in flight, and the most that passes
        between nodes at once."""
        word, depth = self.config.lram_word, min(buffers, self.count)
        inside = resident | self.segment.internal
        most = 0
        for facts in self.facts:
            staying, flowing = sum(facts.loaded(resident, False)), sum(facts.loaded(resident, True))
            between = max(sum(size for name, size in live if name not in resident) for live in facts.passed)
            most = max(most, staying + depth * (flowing + sum(facts.stored(inside))) + between)
        return most + word * (len(self.facts[0].operands) + len(self.segment.nodes))

    def choice(
        self, buffers: int, resident: frozenset[str], split_axes: tuple[int | None, ...] | None = None
    ) -> GroupChoice:
        """Price this division with a buffering depth."""
        key = (buffers, resident, split_axes)
        if key not in self._choices:
            self._choices[key] = self._priced(buffers, resident, split_axes or self.split_axes)
        return self._choices[key]

    def _priced(self, buffers: int, resident: frozenset[str], axes: tuple[int | None, ...]) -> GroupChoice:
        if axes not in self._work:
            self._work[axes] = self._slices(axes)
        slices, programs, peak, jobs, tiles = self._work[axes]
        fixed = max(sum(facts.loaded(resident, False)) for facts in self.facts)
        loaded = sum(sum(facts.loaded(resident, True)) * facts.times for facts in self.facts)
        stored = sum(sum(facts.stored(resident)) * facts.times for facts in self.facts)
        moving = self.facts[0].loaded(resident, True)
        transfers = self.count * (len(moving) + len(self.facts[0].stored(resident)))
        rate = self.config.dma_bytes_per_cycle
        nss = self.weights.nss_bytes_a_start * (transfers + 2 * jobs)
        into, out = (fixed + loaded + programs + nss) / rate, stored / rate
        fill = (fixed + sum(moving) + programs / self.count) / rate
        drain = sum(self.facts[-1].stored(resident)) / rate
        data = self.facts[0].first_data(resident) / rate
        stages = Stages(into, slices, out, fill, data, drain, self.count, self.weights.tile_cycles * tiles)
        word = self.config.lram_word
        demand = self.demand(buffers, resident) + 2 * (-(-peak // word) * word)
        names = tuple(node.name for node in self.segment.nodes)
        decision = GroupDecision(names, self.axis, self.size, axes, buffers)
        nbytes = fixed + loaded + programs + stored
        chained = float(stages.chained(buffers, has_neighbours_room(demand, self.config)))
        return GroupChoice(decision, float(stages.alone(buffers)), chained, nbytes, nbytes / rate, demand, tiles)

    @cached_property
    def split_axes(self) -> tuple[int | None, ...]:
        """For every node the axis that divides it best between the slices, judged by the middle band."""
        middle = self.bands[len(self.bands) // 2][0]
        return tuple(
            None if output is None else self._split_axis(index, output) for index, output in enumerate(middle.outputs)
        )

    def _split_axis(self, index: int, output: Region) -> int | None:
        """The most even axis; None where loading the further slices' programs takes longer than they save."""
        model = self.segment.models[index]
        axis = model.even_split(output.extent)
        if axis is None:
            return None
        cost = model.tile_cost(output.extent, axis, _streamed(model))
        loading = self._program_loads(index, self.count) * cost.program_bytes / self.config.dma_bytes_per_cycle
        return axis if cost.cycles * self.count * cost.jobs >= loading else None

    def _program_loads(self, index: int, bands: int) -> int:
        """Programs that a node loads in so many bands.

        Bands load one each only where the node reads something from outside: what is passed on inside finds the same
        place in every band, and so the program of the band before fits (``share_programs``).
        """
        return bands if self.segment.sources.intersection(self.segment.names[index]) else 1

    def _slices(self, axes: tuple[int | None, ...]) -> tuple[float, int, int, int, int]:
        """Slice cycles, program bytes, the largest program, slice jobs and tiles of all bands."""
        cycles = programs = peak = jobs = tiles = 0
        for one, times in self.bands:
            for index, (model, output, axis) in enumerate(zip(self.segment.models, one.outputs, axes, strict=True)):
                if output is None:
                    continue
                cost = model.tile_cost(output.extent, axis, _streamed(model))
                cycles += times * cost.cycles
                programs += self._program_loads(index, times) * cost.program_bytes
                jobs += times * cost.jobs
                tiles += times
                peak = max(peak, cost.program_bytes)
        return cycles, programs, peak, jobs, tiles

    @cached_property
    def facts(self) -> tuple[_BandFacts, ...]:
        """One entry for every kind of band."""
        return tuple(self._facts_of(one, times) for one, times in self.bands)

    def _facts_of(self, one: Band, times: int) -> _BandFacts:
        first, last, segment = self.bands[0][0], self.bands[-1][0], self.segment
        stored = {name: self._stored(name, region) for name, region in one.held.items()}
        operands = [
            _Operand(name, stored[name], first.held.get(name) != last.held.get(name))
            for name in self._sources
            if name in stored
        ]
        for position, model in enumerate(segment.models):
            output = one.outputs[position]
            if output is not None and model.packs_constants:
                ends = (first.outputs[position] or output, last.outputs[position] or output)
                for part, start, end in zip(*map(model.constant_parts, (output, *ends)), strict=True):
                    operands.append(_Operand(None, part.nbytes, start.first != end.first))
        results = {name: stored.get(name, 0) for name in self._results}
        passed: list[list[tuple[str, int]]] = [[] for _ in segment.nodes]
        for start_, end_, name in self._passages:
            passing = (name, stored.get(name, 0))
            for index in range(start_, end_ + 1):
                passed[index].append(passing)
        return _BandFacts(times, tuple(operands), results, tuple(map(tuple, passed)))

    @cached_property
    def _passages(self) -> list[tuple[int, int, str]]:
        """Maker, last reader and name of every internal tensor."""
        found = []
        for position, node in enumerate(self.segment.nodes):
            if node.output in self.segment.internal:
                readers = [k for k in range(len(self.segment.nodes)) if node.output in self.segment.names[k]]
                found.append((position, max(readers), node.output))
        return found

    def _stored(self, name: str, region: Region) -> int:
        """Bytes that the held part of a tensor takes."""
        extent = region.extent
        if name in self.segment.phases:
            sizes = zip(extent[-2:], self.segment.phases[name], strict=True)
            extent = (*extent[:-2], *(-(-size // phase) * phase for size, phase in sizes))
        return math.prod(extent) * self.segment.models[0].graph.tensors[name].dtype.size


def _streamed(model: NodeModel) -> Residency:
    return Residency((False,) * len(model.inputs), False)
