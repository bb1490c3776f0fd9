"""A segment cut into bands: what its bands load, hold, pass on and store.

Bands between the ends of a run along the axis that is cut are alike, so a few of them tell what all do.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.cost_model import shares_of
from torq_byoc.schedules.fusion.band_kinds import BandKind, BandTraffic, ConstantLoad, NodeLoads
from torq_byoc.schedules.fusion.bands import Band, BandCut, band_count
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.fusion.shared_ends import planned_band
from torq_byoc.schedules.node_operands import ConstantPart


class Division:
    """A segment in bands.

    Args:
        segment, cut: what is cut, and how.
        kinds: the kinds of bands of a run along the axis that is cut, in order.
        ends: the first band, the last one before the outer axis moves on, and the last of all.
    """

    def __init__(
        self,
        segment: Segment,
        cut: BandCut,
        kinds: tuple[BandKind, ...],
        ends: tuple[BandKind, BandKind, BandKind],
    ) -> None:
        self.segment, self.cut, self.kinds = segment, cut, kinds
        self.count = sum(kind.times for kind in kinds)
        self.runs = cut.runs(segment.last.shape, segment.last.steps)
        self._ends = ends
        self._traffic: dict[frozenset[str], tuple[BandTraffic, ...]] = {}
        self._in_place: dict[frozenset[str], frozenset[int]] = {}

    @classmethod
    def of(cls, segment: Segment, cut: BandCut) -> Division | None:
        """The division, or None when some tensor cannot be divided so.

        Whether a band is a box under every shape depends on where it lies, so with reshapes all bands are looked at.
        """
        count, run = band_count(segment, cut), cut.run(segment.last.shape)
        runs = count // run
        middle = runs // 2 * run + run // 2
        wanted = {middle: count - 2 * runs} if run > 2 else {}
        wanted |= {0: runs} | ({count - 1: runs} if run > 1 else {})
        others = dict.fromkeys(range(count) if segment.reshapes else (run - 1, count - 1), 0)

        kinds = {}
        for index, times in sorted({**others, **wanted}.items()):
            found = planned_band(segment, cut, index)
            kind = _kind(found, times)
            if kind is None:
                return None
            kinds[index] = kind
        if len({(frozenset(kind.held), len(kind.steps)) for kind in kinds.values()}) > 1:
            return None  # bands that read different tensors, or of other parts, are not alike either
        ends = (kinds[0], kinds[run - 1], kinds[count - 1])
        return cls(segment, cut, tuple(kinds[index] for index in sorted(wanted)), ends)

    @property
    def middle(self) -> BandKind:
        """What most bands are like."""
        return self.kinds[len(self.kinds) // 2]

    def demand(self, buffers: int, resident: frozenset[str], word: int) -> int:
        """LRAM bytes without programs: operands that stay, operands and results in flight, and the most that passes
        between nodes at once.

        Args:
            buffers: how deep operands and results are buffered.
            resident: tensors that lie in LRAM as a whole.
            word: bytes of an LRAM word.
        """
        depth = min(buffers, self.count)
        most = max(
            one.staying + depth * (one.flowing + one.landing) + buffers * one.part + one.between
            for one in self.traffic(resident)
        )
        return most + word * self._buffers

    @cached_property
    def _buffers(self) -> int:
        """Operands from outside and results: each may end within an LRAM word."""
        operands = len(self.segment.sources.intersection(self.kinds[0].held)) + len(self._constant_loads)
        return operands + len(self.segment.nodes)

    @cached_property
    def largest_constants(self) -> int:
        """Bytes of the constants of the node of the first band that has most."""
        nbytes = Counter[int]()
        for load in self._constants[0]:
            nbytes[load.constant[0]] += load.part.nbytes
        return max(nbytes.values(), default=0)

    def transfers(self, resident: frozenset[str]) -> int:
        """Stores of all bands, and those of their loads that every band does, programs not counted."""
        moving = 0
        if self.count > 1:
            sources = (name for name in self.segment.sources - resident if name in self.kinds[0].held)
            moving = [*self._constant_loads, *map(self._source_loads.__getitem__, sources)].count(self.count)
        return self.count * (moving + len(self.segment.outputs - resident))

    def node_loads(self, resident: frozenset[str]) -> tuple[tuple[NodeLoads, ...], ...]:
        """For every kind of band and every step what it loads and stores, beside what is resident."""
        return tuple(
            self._node_loads(nbytes, constants, resident)
            for nbytes, constants in zip(self._nbytes, self._constants, strict=True)
        )

    def _node_loads(
        self, nbytes: Mapping[str, int], constants: Sequence[ConstantLoad], resident: frozenset[str]
    ) -> tuple[NodeLoads, ...]:
        size, count = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        streams = [
            (self._readers[name], self._source_loads[name], nbytes[name]) for name in self._readers.keys() - resident
        ]
        weights = [
            (load.step, loads, load.part.nbytes) for load, loads in zip(constants, self._constant_loads, strict=True)
        ]
        for step, loads, part in (*streams, *weights):
            size[step, loads] += part
            count[step, loads] += 1

        def loaded(step: int, loads: int, *, apart: bool = True) -> tuple[int, int]:
            return (size[step, loads], count[step, loads]) if apart else (0, 0)

        stored = {
            self._last_steps[position]: nbytes[node.output]
            for position, node in enumerate(self.segment.nodes)
            if node.output in self.segment.outputs and node.output not in resident
        }
        return tuple(
            NodeLoads(
                loaded(step, self.count),
                loaded(step, self.runs, apart=1 < self.runs < self.count),
                loaded(step, 1, apart=self.count > 1),
                stored.get(step, 0),
            )
            for step in range(len(self.kinds[0].steps))
        )

    @cached_property
    def reloaded(self) -> frozenset[int]:
        """Nodes of whose constants every band loads some anew."""
        loads = zip(self._constants[0], self._constant_loads, strict=True)
        return frozenset(load.constant[0] for load, times in loads if times == self.count > 1)

    @cached_property
    def _last_steps(self) -> dict[int, int]:
        """The last step of a band in which each node works."""
        return {position: step for step, (position, _) in enumerate(self.kinds[0].steps)}

    @cached_property
    def _readers(self) -> dict[str, int]:
        """The first step of a band that reads each tensor from outside."""
        first: dict[str, int] = {}
        for step, (position, _) in enumerate(self.kinds[0].steps):
            for name in self.segment.names[position]:
                if name in self.segment.sources and name in self.kinds[0].held:
                    first.setdefault(name, step)
        return first

    def traffic(self, resident: frozenset[str]) -> tuple[BandTraffic, ...]:
        """One entry for every kind of band."""
        found = self._traffic.get(resident)
        if found is None:
            found = tuple(self._traffic_of(number, resident) for number in range(len(self.kinds)))
            self._traffic[resident] = found
        return found

    def _traffic_of(self, number: int, resident: frozenset[str]) -> BandTraffic:
        segment, nbytes = self.segment, self._nbytes[number]
        constants, parted, part = self._constant_bytes[number]
        loaded = dict(constants)
        sources = [name for name in segment.sources - resident if name in nbytes]
        for name in sources:
            loaded[self._source_loads[name]] += nbytes[name]
        flowing = loaded[self.count] if self.count > 1 else 0
        stored = {name: nbytes.get(name, 0) for name in segment.outputs - resident}
        return BandTraffic(
            self.kinds[number].times,
            staying=sum(loaded.values()) - flowing,
            flowing=flowing,
            parted=parted,
            part=part,
            turning=loaded[self.runs] if self.runs < self.count else 0,
            data=sum(nbytes[name] for name in sources),
            stored=sum(stored.values()),
            landing=sum(size for name, size in stored.items() if name not in segment.internal),
            between=self._between(nbytes, resident),
        )

    def in_place(self, resident: frozenset[str]) -> frozenset[int]:
        """Nodes that have nothing to do, since what they put together is made in its place: but for what lies in LRAM
        as a whole, in which a band has other strides."""
        if not self.segment.joining:
            return frozenset()
        if resident not in self._in_place:
            self._in_place[resident] = frozenset(
                position
                for position in self.segment.joining
                if self.count == 1
                or resident.isdisjoint({self.segment.nodes[position].output, *self.segment.names[position]})
            )
        return self._in_place[resident]

    @cached_property
    def _constant_bytes(self) -> list[tuple[dict[int, int], int, int]]:
        """For every kind of band the bytes of packed constants by how many bands load them; of those that come part by
        part all bytes, and those of the largest part of each."""
        found = []
        for constants in self._constants:
            loaded = {1: 0, self.runs: 0, self.count: 0}
            parts: dict[tuple[int, int], list[int]] = {}
            for loads, load in zip(self._constant_loads, constants, strict=True):
                if load.constant in self._parted:
                    parts.setdefault(load.constant, []).append(load.part.nbytes)
                else:
                    loaded[loads] += load.part.nbytes
            found.append((loaded, sum(map(sum, parts.values())), sum(map(max, parts.values()))))
        return found

    def _between(self, nbytes: Mapping[str, int], resident: frozenset[str]) -> int:
        """The most that is passed on between nodes at once; what parts make together is there from their first on."""
        change, parts = [0] * (len(self.segment.nodes) + 1), self.cut.parts
        for maker, last, name in self._passages(resident):
            if name not in resident:
                first = parts.first if parts is not None and maker == parts.last else maker
                change[first] += nbytes.get(name, 0)
                change[last + 1] -= nbytes.get(name, 0)
        return max(itertools.accumulate(change))

    def _passages(self, resident: frozenset[str]) -> Iterable[tuple[int, int, str]]:
        """Maker, last reader and name of what is passed on; what is made in its place goes by the name of the whole,
        which is there from its first part on."""
        passages, in_place = self.segment.passages, self.in_place(resident)
        if not in_place:
            return passages
        whole = {name: self.segment.nodes[at].output for at in in_place for name in self.segment.names[at]}
        found: dict[str, tuple[int, int]] = {}
        for maker, last, part in passages:
            name = part
            while name in whole:
                name = whole[name]
            first, end = found.get(name, (maker, last))
            found[name] = (min(first, maker), max(end, last))
        return [(first, end, name) for name, (first, end) in found.items()]

    @cached_property
    def _nbytes(self) -> tuple[dict[str, int], ...]:
        """For every kind of band the bytes of what it holds of each tensor."""
        stored = self._stored
        return tuple([{name: stored(name, region) for name, region in kind.held.items()} for kind in self.kinds])

    def first_shares(self, resident: frozenset[str]) -> tuple[float, ...]:
        """Of the tensor from XRAM of which the first band reads the largest part, that part along every axis; empty
        where there is none."""
        held, shapes = self.kinds[0].held, self.segment.shapes
        streamed = [name for name in self.segment.sources - resident if name in held]
        return max((shares_of(held[name], shapes[name]) for name in sorted(streamed)), key=math.prod, default=())

    @cached_property
    def _source_loads(self) -> dict[str, int]:
        """How many bands load each tensor from outside."""
        return {name: self._loads([end.held.get(name) for end in self._ends]) for name in self.segment.sources}

    @cached_property
    def _constant_loads(self) -> list[int]:
        """How many bands load each packed constant of the steps, in order."""
        known = {id(kind): loads for kind, loads in zip(self.kinds, self._constants, strict=True)}
        ends = [known[id(end)] if id(end) in known else self._constants_of(end) for end in self._ends]
        return [
            self.count if loads[0].constant in self._parted else self._loads([load.part.first for load in loads])
            for loads in zip(*ends, strict=True)
        ]

    @cached_property
    def _constants(self) -> tuple[list[ConstantLoad], ...]:
        """For every kind of band what it needs of packed constants."""
        return tuple(map(self._constants_of, self.kinds))

    @cached_property
    def _parted(self) -> set[tuple[int, int]]:
        """Constants that every band loads part by part."""
        found = Counter(load.constant for load in self._constants[0])
        return {constant for constant, count in found.items() if count > 1}

    def _constants_of(self, kind: BandKind) -> list[ConstantLoad]:
        """What such a band needs of all packed constants."""
        parts = self.cut.parts
        if parts is None:
            return [load for position, box in kind.steps for load in self.segment.constant_loads(position, box)]
        found: list[ConstantLoad] = []
        held: dict[tuple[int, int], ConstantPart] = {}
        for step, (position, box) in enumerate(kind.steps):
            model, goes_by_parts = self.segment.models[position], parts.has(position)
            whole = goes_by_parts and parts.keep
            for which, part in enumerate(model.constant_parts(kind.outputs[position] if whole else box)):
                constant = (position, which)
                if not (goes_by_parts and held.get(constant) == part):
                    found.append(ConstantLoad(step, constant, part))
                    held[constant] = part
        return found

    def _loads(self, parts: Sequence[object]) -> int:
        """How many bands load an operand, of which the bands at the ends need these parts."""
        first, turn, last = parts
        if first != turn:
            return self.count
        return 1 if first == last else self.runs

    def _stored(self, name: str, region: Region) -> int:
        """Bytes that the held part of a tensor takes."""
        return self.segment.layouts[name].elements(region.extent) * self.segment.sizes[name]


def _kind(found: Band | None, times: int) -> BandKind | None:
    """A band as one of so many; None when some node has nothing to do in it: bands in which different nodes work are
    not alike, and a few of them tell nothing about the others."""
    outputs = [output for output in found.outputs if output is not None] if found else []
    if found is None or len(outputs) < len(found.outputs):
        return None
    return BandKind(times, tuple(outputs), found.held, found.steps)
