"""What a node reads: the parts and bytes of every operand that a box of the output needs, under any cut.

The parts of a tensor that neighbouring tiles read are boxes, and each axis of such a box follows one
output axis (rows follow rows, input channels follow the group of the output channels).  So it is enough
to ask the kernel, for one output axis at a time, how the boxes of its tiles compare with the whole; the
bytes of any tiling are products of these factors, and no tile is ever enumerated.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Kernel, Layout, PackedConstant, Region, kernel_for
from torq_byoc.kernels.portion import CarryingKernel, Portion, region_of
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.placements import Granules
from torq_byoc.schedules.tiles import portions_of


class Cut(msgspec.Struct, frozen=True, gc=False):
    """One operand seen along one output axis that is cut into tiles; sizes relative to the whole operand.

    Attributes:
        moves: the operand's part changes from tile to tile.
        total: sum of the parts' sizes (above 1 where parts overlap).
        changed, changes: sum of the sizes of those that differ from the part before, and their number; the first part
            is one of them.
        largest, first, last: sizes of single parts.
    """

    moves: bool
    total: float
    changed: float
    changes: int
    largest: float
    first: float
    last: float


WHOLE = Cut(False, 1.0, 1.0, 1, 1.0, 1.0, 1.0)
"""An operand that every tile reads as a whole."""


@dataclass(frozen=True)
class Stream:
    """An operand on its way into LRAM: a tensor input, or a packed constant.

    Attributes:
        label: for reports: tensor or constant name.
        position: index into ``kernel.tensor_inputs``; None for a constant.
        nbytes: bytes of the whole operand as the kernel wants it.
    """

    label: str
    position: int | None
    nbytes: int


class Residency(msgspec.Struct, frozen=True, gc=False):
    """Which operands of a node lie in LRAM as a whole: a flag a tensor input, and the output's."""

    inputs: tuple[bool, ...]
    output: bool


class ConstantPart(msgspec.Struct, frozen=True, gc=False):
    """Granules [first, first + count) of a packed constant, and their bytes."""

    first: int
    count: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class _Boxes:
    """Boxes of one tensor in a row; a row of either array is one of them.

    Attributes:
        start, end: first index along every axis, and the one after the last.
    """

    start: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, regions: Sequence[Region]) -> _Boxes:
        """The boxes of regions."""
        start = np.array([region.start for region in regions], dtype=np.int64)
        return cls(start, start + np.array([region.extent for region in regions], dtype=np.int64))

    @cached_property
    def ascend(self) -> bool:
        """Whether none of them is empty, and the box around neighbours is that around the first and the last."""
        ascends = np.all(self.start[1:] >= self.start[:-1]) and np.all(self.end[1:] >= self.end[:-1])
        return bool(ascends and np.all(self.end > self.start))

    def carried_on(self, count: int) -> _Boxes:
        """So many boxes that go on as the first two do, up to the last one."""
        steps = np.arange(count - 1)[:, None]
        start, end = (ends[0] + steps * (ends[1] - ends[0]) for ends in (self.start, self.end))
        return _Boxes(np.concatenate([start, self.start[-1:]]), np.concatenate([end, self.end[-1:]]))

    def joined(self, count: int) -> _Boxes:
        """The boxes around so many of them each, fewer in the last one."""
        lasts = np.minimum(np.arange(count - 1, len(self.end) + count - 1, count), len(self.end) - 1)
        return _Boxes(self.start[::count], self.end[lasts])

    def differ(self) -> list[bool]:
        """For every box but the first one whether it is another one than that before."""
        moved = (self.start[1:] != self.start[:-1]) | (self.end[1:] != self.end[:-1])
        return np.any(moved, axis=1).tolist()


class NodeOperands:
    """The operands of a node; asked lazily and remembered.

    Args:
        graph: the graph the node stands in.
        node: the node; any node of the same signature has the same operands.
        config: the machine.

    Attributes:
        streamed: nothing resident: every operand and the result pass tile by tile.
    """

    def __init__(self, graph: OpGraph, node: Node, config: NpuConfig) -> None:
        self.graph, self.node, self.config = graph, node, config
        self.kernel: Kernel = kernel_for(node.op)
        output = graph.tensors[node.output]
        self.shape, self.output_bytes, self.element = output.shape, output.nbytes, output.dtype.size
        self.steps = self.kernel.tile_steps(graph, node, config)
        self.inputs = self.kernel.tensor_inputs(graph, node)
        self.streamed = Residency((False,) * len(self.inputs), False)
        packed = self.kernel.constants(graph, node, config)
        self.granules = [Granules.of(constant, len(self.shape)) for constant in packed]
        self.reduction: tuple[int, ...] = ()
        if isinstance(self.kernel, CarryingKernel):
            self.reduction = self.kernel.reduction(graph, node, config)
        self._layouts = [self.kernel.input_layout(graph, node, position) for position in self.inputs]
        self._whole_regions = [self.input_region(i, Region.whole(self.shape)) for i in range(len(self.inputs))]
        self.streams = self._streams(packed)
        self._cuts: dict[tuple[int, int, int], Cut] = {}
        self._boxes: dict[tuple[int, int], dict[int, _Boxes]] = {}
        self._regions: dict[Region, tuple[Region, ...]] = {}
        self._parts: dict[Region, tuple[ConstantPart, ...]] = {}

    def layout(self, index: int) -> Layout:
        """How the kernel wants a tensor input's tile (index into ``tensor_inputs``)."""
        return self._layouts[index]

    def cut(self, stream: int, axis: int, tile: int) -> Cut:
        """How one operand divides when output axis ``axis`` is cut into tiles of extent ``tile``."""
        if tile >= self.shape[axis]:
            return WHOLE
        key = (stream, axis, tile)
        if key not in self._cuts:
            position = self.streams[stream].position
            parts = (
                self._constant_parts(stream, axis, tile)
                if position is None
                else self._tensor_parts(position, axis, tile)
            )
            self._cuts[key] = parts
        return self._cuts[key]

    def moves(self, stream: int, axis: int) -> bool:
        """Whether tiles along an output axis need different parts of an operand."""
        return bool(self.steps[axis]) and self.cut(stream, axis, self.steps[axis]).moves

    def portion_cut(self, stream: int, portion: Sequence[int]) -> Cut:
        """How one operand divides between the portions of the reduction."""
        whole, position = Region.whole(self.shape), self.streams[stream].position
        portions = portions_of(self.reduction, portion)
        if position is not None:
            regions = [self.input_region(position, whole, part) for part in portions]
            sizes = [self._stored(position, region) for region in regions]
            return _compare(_differ(regions), sizes, self._stored(position, self._whole_regions[position]))
        if self.granules[stream - len(self.inputs)].pieces == 1:
            return WHOLE
        boxes = [part.box for part in portions]
        return _compare(_differ(boxes), [box.extent[0] for box in boxes], self.reduction[0])

    def input_regions(self, output: Region, portion: Portion | None = None) -> tuple[Region, ...]:
        """What the kernel says each tensor input contributes to a box of the output, or to a portion of it."""
        if portion is not None:
            return tuple(self.input_region(index, output, portion) for index in range(len(self.inputs)))
        found = self._regions.get(output)
        if found is None:
            found = self._regions[output] = tuple(self.input_region(index, output) for index in range(len(self.inputs)))
        return found

    @property
    def packs_constants(self) -> bool:
        """Whether tiles load packed constants."""
        return bool(self.granules)

    def constant_parts(self, output: Region) -> tuple[ConstantPart, ...]:
        """The granules of every packed constant that a box of the output needs."""
        found = self._parts.get(output)
        if found is None:
            found = self._parts[output] = tuple(_part(granules, output) for granules in self.granules)
        return found

    def first_part(self, stream: int, tile: Sequence[int]) -> tuple[int, ...]:
        """Shape of what the first tile needs of an operand: a box, or (granules, bytes a granule)."""
        box = Region((0,) * len(self.shape), tuple(tile))
        position = self.streams[stream].position
        if position is not None:
            return self.input_region(position, box).extent
        granules = self.granules[stream - len(self.inputs)]
        count = granules.count if granules.axis is None else granules.cover(0, tile[granules.axis])[1]
        return (count, granules.nbytes)

    def _streams(self, packed: Sequence[PackedConstant]) -> tuple[Stream, ...]:
        streams = []
        for index, position in enumerate(self.inputs):
            name = self.node.inputs[position]
            nbytes = self._stored(index, self._whole_regions[index]) * self.graph.tensors[name].dtype.size
            streams.append(Stream(name, index, nbytes))
        return (*streams, *(Stream(constant.name, None, constant.data.size) for constant in packed))

    def input_region(self, index: int, output: Region, portion: Portion | None = None) -> Region:
        """What one tensor input contributes to a box of the output, or to a portion of it."""
        return region_of(self.kernel, self.graph, self.node, self.inputs[index], output, portion)

    def _stored(self, index: int, region: Region) -> int:
        """Elements that a tile of a tensor input takes in LRAM."""
        return self._layouts[index].elements(region.extent)

    def _tensor_parts(self, index: int, axis: int, tile: int) -> Cut:
        """Windows move on with their outputs: what the first and the last tile read, all between them do, and a tile
        made of smaller ones reads what these do."""
        first, last = (
            self._read_along(index, axis, tile, start) for start in (0, (self.shape[axis] - 1) // tile * tile)
        )
        if first == last and first.size:
            return WHOLE
        boxes = self._boxes_along(index, axis, tile)
        extents: Any = (boxes.end - boxes.start).T
        sizes: Any = self._layouts[index].elements(extents)
        return _compare(boxes.differ(), sizes.tolist(), self._stored(index, self._whole_regions[index]))

    def _boxes_along(self, index: int, axis: int, tile: int) -> _Boxes:
        """What the tiles along an output axis read of a tensor input; where smaller ones that they are made of were
        asked for before, the kernel is not asked again."""
        known = self._boxes.setdefault((index, axis), {})
        finer = max((size for size in known if tile % size == 0 and known[size].ascend), default=None)
        if finer is None:
            known[tile] = self._boxes_read(index, axis, tile)
        elif finer < tile:
            known[tile] = known[finer].joined(tile // finer)
        return known[tile]

    def _boxes_read(self, index: int, axis: int, tile: int) -> _Boxes:
        """What the kernel says of those tiles; of a kernel whose reads move with its tiles the first two and the last
        one tell about all."""
        starts = range(0, self.shape[axis], tile)
        asked = (*starts[:2], starts[-1]) if self.kernel.moves and len(starts) > 3 else starts
        boxes = _Boxes.of([self._read_along(index, axis, tile, start) for start in asked])
        return boxes if len(asked) == len(starts) else boxes.carried_on(len(starts))

    def _read_along(self, index: int, axis: int, tile: int, start: int) -> Region:
        """What the kernel says of one of those tiles."""
        first, extent = [0] * len(self.shape), list(self.shape)
        first[axis], extent[axis] = start, min(tile, self.shape[axis] - start)
        return self.input_region(index, Region(tuple(first), tuple(extent)))

    def _constant_parts(self, stream: int, axis: int, tile: int) -> Cut:
        granules = self.granules[stream - len(self.inputs)]
        if granules.axis != axis:
            return WHOLE
        starts = range(0, self.shape[axis], tile)
        ranges = [granules.cover(start, min(tile, self.shape[axis] - start)) for start in starts]
        return _compare(_differ(ranges), [count for _, count in ranges], granules.count)


def _part(granules: Granules, output: Region) -> ConstantPart:
    first, count = 0, granules.count
    if granules.axis is not None:
        first, count = granules.cover(output.start[granules.axis], output.extent[granules.axis])
    return ConstantPart(first, count, count * granules.nbytes)


def _differ(parts: Sequence[object]) -> list[bool]:
    """For every part but the first one whether it is another one than that before."""
    return [before != after for before, after in itertools.pairwise(parts)]


def _compare(differ: Sequence[bool], sizes: Sequence[int], whole: int) -> Cut:
    """Sizes of an operand's parts against the whole; ``whole`` is 0 only for an operand nobody reads.

    Args:
        differ: for every part but the first one whether it is another one than that before.
        sizes: of the parts.
        whole: of the operand.
    """
    changed = [*sizes[:1], *itertools.compress(sizes[1:], differ)]
    if len(changed) == 1 or whole == 0:
        return WHOLE
    total, loaded, ends = sum(sizes) / whole, sum(changed) / whole, (sizes[0] / whole, sizes[-1] / whole)
    return Cut(True, total, loaded, len(changed), max(sizes) / whole, *ends)
