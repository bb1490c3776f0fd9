"""A segment cut into bands: what its bands load, hold, pass on and store.

Bands between the ends of a run along the axis that is cut are alike, so a few of them tell what all do.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from torq_byoc.kernels.kernel import Layout, Region
from torq_byoc.schedules.fusion.bands import Band, BandCut, band, band_count
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.node_operands import ConstantPart


class BandKind(msgspec.Struct, frozen=True, eq=False):
    """Bands that are alike.

    Attributes:
        times: how many.
        outputs: for every node the box of its output that such a band computes.
        held: for every tensor the part of it that lies in LRAM.
    """

    times: int
    outputs: tuple[Region, ...]
    held: Mapping[str, Region]


class BandTraffic(msgspec.Struct, frozen=True, gc=False):
    """Bytes that each band of a kind moves and holds beside what is resident.

    Attributes:
        times: how many bands.
        staying, flowing: operands that stay for several bands, and that each band loads anew.
        turning: those of them that are loaded when the outer axis moves on.
        data: what is loaded of tensors, constants left out.
        stored: results that go to XRAM.
        landing: those of them that no node of the segment reads.
        between: the most that is passed on between nodes at once.
    """

    times: int
    staying: int
    flowing: int
    turning: int
    data: int
    stored: int
    landing: int
    between: int


class NodeLoads(NamedTuple):
    """What a node is the first of a band to need from XRAM, and what of its results goes there.

    Attributes:
        flowing: bytes and number of the operands that every band loads anew.
        turning: of those that are loaded when the outer axis moves on.
        staying: of those that are loaded once.
        stored: bytes of results.
    """

    flowing: tuple[int, int]
    turning: tuple[int, int]
    staying: tuple[int, int]
    stored: int


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

        def reads(position: int, box: Region) -> Sequence[Region]:
            return segment.models[position].input_regions(box)

        kinds = {}
        for index, times in sorted({**others, **wanted}.items()):
            found = band(segment, cut, index, reads)
            kind = _kind(found, times)
            if kind is None:
                return None
            kinds[index] = kind
        if len({frozenset(kind.held) for kind in kinds.values()}) > 1:
            return None  # bands that read different tensors are not alike either
        ends = (kinds[0], kinds[run - 1], kinds[count - 1])
        return cls(segment, cut, tuple(kinds[index] for index in sorted(wanted)), ends)

    @property
    def middle(self) -> BandKind:
        """What most bands are like."""
        return self.kinds[len(self.kinds) // 2]

    def staying(self, resident: frozenset[str]) -> int:
        """LRAM bytes that no division into smaller bands saves: what several bands share."""
        return min(one.staying for one in self.traffic(resident)) if self.count > 1 else 0

    def demand(self, buffers: int, resident: frozenset[str], word: int) -> int:
        """LRAM bytes without programs: operands that stay, operands and results in flight, and the most that passes
        between nodes at once.

        Args:
            buffers: how deep operands and results are buffered.
            resident: tensors that lie in LRAM as a whole.
            word: bytes of an LRAM word.
        """
        depth = min(buffers, self.count)
        most = max(one.staying + depth * (one.flowing + one.landing) + one.between for one in self.traffic(resident))
        operands = len(self.segment.sources.intersection(self.kinds[0].held)) + len(self._constant_loads)
        return most + word * (operands + len(self.segment.nodes))

    def transfers(self, resident: frozenset[str]) -> int:
        """Stores of all bands, and those of their loads that every band does, programs not counted."""
        moving = 0
        if self.count > 1:
            sources = (name for name in self.segment.sources - resident if name in self.kinds[0].held)
            moving = [*self._constant_loads, *map(self._source_loads.__getitem__, sources)].count(self.count)
        return self.count * (moving + len(self.segment.outputs - resident))

    def node_loads(self, resident: frozenset[str]) -> tuple[tuple[NodeLoads, ...], ...]:
        """For every kind of band and every node what it loads and stores, beside what is resident."""
        return tuple(
            self._node_loads(nbytes, constants, resident)
            for nbytes, constants in zip(self._nbytes, self._constant_bytes, strict=True)
        )

    def _node_loads(
        self, nbytes: Mapping[str, int], constants: Sequence[int], resident: frozenset[str]
    ) -> tuple[NodeLoads, ...]:
        nodes = self.segment.nodes
        size, count = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        streams = [
            (self._readers[name], self._source_loads[name], nbytes[name]) for name in self._readers.keys() - resident
        ]
        for reader, loads, part in (
            *streams,
            *zip(self._constant_readers, self._constant_loads, constants, strict=True),
        ):
            size[reader, loads] += part
            count[reader, loads] += 1

        def loaded(node: int, loads: int, *, apart: bool = True) -> tuple[int, int]:
            return (size[node, loads], count[node, loads]) if apart else (0, 0)

        stored = [
            0 if node.output in resident or node.output not in self.segment.outputs else nbytes[node.output]
            for node in nodes
        ]
        return tuple(
            NodeLoads(
                loaded(node, self.count),
                loaded(node, self.runs, apart=1 < self.runs < self.count),
                loaded(node, 1, apart=self.count > 1),
                stored[node],
            )
            for node in range(len(nodes))
        )

    @cached_property
    def _readers(self) -> dict[str, int]:
        """The first node of a band that reads each tensor from outside."""
        reads = ((name, reader) for reader, names in enumerate(self.segment.names) for name in names)
        first: dict[str, int] = {}
        for name, reader in reads:
            if name in self.segment.sources and name in self.kinds[0].held:
                first.setdefault(name, reader)
        return first

    @cached_property
    def _constant_readers(self) -> list[int]:
        """The node that reads each packed constant, in order."""
        boxes = zip(self.segment.models, self.kinds[0].outputs, strict=True)
        return [node for node, (model, box) in enumerate(boxes) for _ in model.constant_parts(box)]

    def traffic(self, resident: frozenset[str]) -> tuple[BandTraffic, ...]:
        """One entry for every kind of band."""
        if resident not in self._traffic:
            self._traffic[resident] = tuple(
                self._traffic_of(kind.times, nbytes, constants, resident)
                for kind, nbytes, constants in zip(self.kinds, self._nbytes, self._constant_bytes, strict=True)
            )
        return self._traffic[resident]

    def _traffic_of(
        self, times: int, nbytes: Mapping[str, int], constants: Sequence[int], resident: frozenset[str]
    ) -> BandTraffic:
        segment, count, runs = self.segment, self.count, self.runs
        sources = [name for name in segment.sources - resident if name in nbytes]
        data = [nbytes[name] for name in sources]
        sizes = [*constants, *data]
        loads = [*self._constant_loads, *[self._source_loads[name] for name in sources]]
        flowing = turning = 0
        for times_loaded, size in zip(loads, sizes, strict=True):
            if times_loaded == count > 1:
                flowing += size
            if times_loaded == runs < count:
                turning += size
        stored = [(name, nbytes.get(name, 0)) for name in segment.outputs - resident]
        change = [0] * (len(segment.nodes) + 1)
        for first, last, name in segment.passages:
            if name not in resident:
                change[first] += nbytes.get(name, 0)
                change[last + 1] -= nbytes.get(name, 0)
        return BandTraffic(
            times,
            staying=sum(sizes) - flowing,
            flowing=flowing,
            turning=turning,
            data=sum(data),
            stored=sum([size for _, size in stored]),
            landing=sum([size for name, size in stored if name not in segment.internal]),
            between=max(itertools.accumulate(change)),
        )

    @cached_property
    def _nbytes(self) -> tuple[dict[str, int], ...]:
        """For every kind of band the bytes of what it holds of each tensor."""
        stored = self._stored
        return tuple([{name: stored(name, region) for name, region in kind.held.items()} for kind in self.kinds])

    @cached_property
    def _source_loads(self) -> dict[str, int]:
        """How many bands load each tensor from outside."""
        return {name: self._loads([end.held.get(name) for end in self._ends]) for name in self.segment.sources}

    @cached_property
    def _constant_loads(self) -> list[int]:
        """How many bands load each packed constant of the nodes, in order."""
        parts = [[part.first for part in self._constants(end)] for end in self._ends]
        return [self._loads(ends) for ends in zip(*parts, strict=True)]

    @cached_property
    def _constant_bytes(self) -> list[list[int]]:
        """For every kind of band the bytes of those constants."""
        return [[part.nbytes for part in self._constants(kind)] for kind in self.kinds]

    def _constants(self, kind: BandKind) -> list[ConstantPart]:
        """What such a band needs of all packed constants."""
        boxes = zip(self.segment.models, kind.outputs, strict=True)
        return [part for model, box in boxes if model.packs_constants for part in model.constant_parts(box)]

    def _loads(self, parts: Sequence[object]) -> int:
        """How many bands load an operand, of which the bands at the ends need these parts."""
        first, turn, last = parts
        if first != turn:
            return self.count
        return 1 if first == last else self.runs

    def _stored(self, name: str, region: Region) -> int:
        """Bytes that the held part of a tensor takes."""
        phases = self.segment.phases.get(name)
        elements = region.size if phases is None else Layout(phases).elements(region.extent)
        return elements * self.segment.sizes[name]


def _kind(found: Band | None, times: int) -> BandKind | None:
    """A band as one of so many; None when some node has nothing to do in it: bands in which different nodes work are
    not alike, and a few of them tell nothing about the others."""
    outputs = [output for output in found.outputs if output is not None] if found else []
    return BandKind(times, tuple(outputs), found.held) if found and len(outputs) == len(found.outputs) else None
