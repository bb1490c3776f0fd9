"""What the cost model knows of one node: the bytes of every operand under any cut, and slice cycles.

The parts of a tensor that neighbouring tiles read are boxes, and each axis of such a box follows one
output axis (rows follow rows, input channels follow the group of the output channels).  So it is enough
to ask the kernel, for one output axis at a time, how the boxes of its tiles compare with the whole; the
bytes of any tiling are products of these factors, and no tile is ever enumerated.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import ConstantPlacement, Kernel, Layout, PackedConstant, Placement, Region, kernel_for
from torq_byoc.kernels.portion import CarryingKernel, Portion, region_of, tasks_of
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.encoding import encoded_size
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.timing import task_cycles
from torq_byoc.schedules import candidates
from torq_byoc.schedules.placements import Granules, dense
from torq_byoc.schedules.signature import signature
from torq_byoc.schedules.tiles import portion_kinds, portions_of, split_between_slices

_SPLITS = 3
"""Axes along which dividing a tile between the slices is priced, the most even ones."""


@dataclass(frozen=True)
class Cut:
    """One operand seen along one output axis that is cut into tiles; sizes relative to the whole operand.

    Attributes:
        moves: the operand's part changes from tile to tile.
        total: sum of the parts' sizes (above 1 where parts overlap).
        largest, first, last: sizes of single parts.
    """

    moves: bool
    total: float
    largest: float
    first: float
    last: float


WHOLE = Cut(False, 1.0, 1.0, 1.0, 1.0)
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


@dataclass(frozen=True)
class Residency:
    """Which operands of a node lie in LRAM as a whole: a flag a tensor input, and the output's."""

    inputs: tuple[bool, ...]
    output: bool


@dataclass(frozen=True)
class ConstantPart:
    """Granules [first, first + count) of a packed constant, and their bytes."""

    first: int
    count: int
    nbytes: int


@dataclass(frozen=True)
class SliceCost:
    """One tile on all slices: cycles of the slowest slice; slices at work, tasks and program bytes of all.

    Portions of the reduction are summed up, one after the other; ``program_peak`` is of the largest one.
    """

    cycles: int
    jobs: int
    tasks: int
    program_bytes: int
    program_peak: int


@dataclass
class _KnownCosts:
    """Slice costs of one signature on one machine; ``planar`` once a task walked a plane."""

    costs: dict[tuple[tuple[int, ...], int | None, Residency, tuple[int, ...]], SliceCost] = field(default_factory=dict)
    planar: bool = False


@functools.lru_cache(maxsize=1024)
def _known_costs(config: NpuConfig, key: Hashable) -> _KnownCosts:
    """The slice costs found so far, shared by all schedules of a process: compilers ask again and again."""
    del config, key
    return _KnownCosts()


class NodeModel:
    """Facts about a node that do not depend on a decision; asked lazily and remembered.

    Args:
        graph: the graph the node stands in.
        node: the node; any node of the same signature is described by the same model.
        config: the machine.
    """

    def __init__(self, graph: OpGraph, node: Node, config: NpuConfig) -> None:
        self.graph, self.node, self.config = graph, node, config
        self.kernel: Kernel = kernel_for(node.op)
        output = graph.tensors[node.output]
        self.shape, self.output_bytes, self.element = output.shape, output.nbytes, output.dtype.size
        self.steps = self.kernel.tile_steps(graph, node, config)
        self.inputs = self.kernel.tensor_inputs(graph, node)
        packed = self.kernel.constants(graph, node, config)
        self._granules = [Granules.of(constant, len(self.shape)) for constant in packed]
        self.reduction: tuple[int, ...] = ()
        if isinstance(self.kernel, CarryingKernel):
            self.reduction = self.kernel.reduction(graph, node, config)
        self._layouts = [self.kernel.input_layout(graph, node, position) for position in self.inputs]
        self._whole_regions = [self._input_region(i, Region.whole(self.shape)) for i in range(len(self.inputs))]
        self.streams = self._streams(packed)
        self._cuts: dict[tuple[int, int, int], Cut] = {}
        self._regions: dict[Region, tuple[Region, ...]] = {}
        self._parts: dict[Region, tuple[ConstantPart, ...]] = {}
        self._splits: dict[tuple[int, ...], int | None] = {}
        self._known = _known_costs(config, signature(graph, node))

    def layout(self, index: int) -> Layout:
        """How the kernel wants a tensor input's tile (index into ``tensor_inputs``)."""
        return self._layouts[index]

    def row_bytes(self, stream: int) -> int:
        """Bytes of a whole innermost row of a tensor input; 0 for constants and scalars."""
        position = self.streams[stream].position
        if position is None:
            return 0
        info = self.graph.tensors[self.node.inputs[self.inputs[position]]]
        return info.shape[-1] * info.dtype.size if info.shape else 0

    def cut(self, stream: int, axis: int, tile: int) -> Cut:
        """How one operand divides when output axis ``axis`` is cut into tiles of extent ``tile``."""
        if tile >= self.shape[axis]:
            return WHOLE
        key = (stream, axis, tile)
        if key not in self._cuts:
            position = self.streams[stream].position
            parts = self._constant_parts(stream, axis, tile) if position is None else self._tensor_parts(key, position)
            self._cuts[key] = parts
        return self._cuts[key]

    def portion_cut(self, stream: int, portion: Sequence[int]) -> Cut:
        """How one operand divides between the portions of the reduction."""
        whole, position = Region.whole(self.shape), self.streams[stream].position
        portions = portions_of(self.reduction, portion)
        if position is not None:
            regions = [self._input_region(position, whole, part) for part in portions]
            sizes = [self._stored(position, region) for region in regions]
            return _compare(regions, sizes, self._stored(position, self._whole_regions[position]))
        if self._granules[stream - len(self.inputs)].pieces == 1:
            return WHOLE
        boxes = [part.box for part in portions]
        return _compare(boxes, [box.extent[0] for box in boxes], self.reduction[0])

    def carried_tiles(self) -> list[tuple[int, ...]]:
        """Tiles that can be computed in portions; empty when the reduction cannot be divided."""
        return candidates.carried_tiles(self.shape, self.steps, self._carried_boxes(), self.config.slices)

    def carried_splits(self, tile: Sequence[int]) -> list[int | None]:
        """Axes along which the slices may share a tile that is computed in portions: each one's sums fit PRAM."""
        boxes, box = self._carried_boxes(), Region((0,) * len(self.shape), tuple(tile))

        def fits(axis: int | None) -> bool:
            step = 0 if axis is None else self.steps[axis]
            parts = split_between_slices(box, axis, step, self.config.slices)
            return all(any(_inside(part.extent, largest) for largest in boxes) for part in parts)

        cuttable = [axis for axis, step in enumerate(self.steps) if step and tile[axis] > step]
        return [axis for axis in (*cuttable, None) if fits(axis)]

    def _carried_boxes(self) -> tuple[tuple[int, ...], ...]:
        if not isinstance(self.kernel, CarryingKernel) or not self.reduction:
            return ()
        return self.kernel.carried_boxes(self.graph, self.node, self.config)

    def input_regions(self, output: Region, portion: Portion | None = None) -> tuple[Region, ...]:
        """What the kernel says each tensor input contributes to a box of the output, or to a portion of it."""
        if portion is not None:
            return tuple(self._input_region(index, output, portion) for index in range(len(self.inputs)))
        if output not in self._regions:
            self._regions[output] = tuple(self._input_region(index, output) for index in range(len(self.inputs)))
        return self._regions[output]

    @property
    def packs_constants(self) -> bool:
        """Whether tiles load packed constants."""
        return bool(self._granules)

    def constant_parts(self, output: Region) -> tuple[ConstantPart, ...]:
        """The granules of every packed constant that a box of the output needs."""
        if output not in self._parts:
            self._parts[output] = tuple(_part(granules, output) for granules in self._granules)
        return self._parts[output]

    def even_split(self, extent: Sequence[int]) -> int | None:
        """The axis along which the slices share a tile of these extents best; None when they cannot."""
        key = tuple(extent)
        if key not in self._splits:
            options = candidates.split_axes(key, self.steps, self.config.slices, _SPLITS)
            streamed = Residency((False,) * len(self.inputs), False)
            self._splits[key] = min(options, key=lambda axis: self.tile_cost(key, axis, streamed).cycles)
        return self._splits[key]

    def first_part(self, stream: int, tile: Sequence[int]) -> tuple[int, ...]:
        """Shape of what the first tile needs of an operand: a box, or (granules, bytes a granule)."""
        box = Region((0,) * len(self.shape), tuple(tile))
        position = self.streams[stream].position
        if position is not None:
            return self._input_region(position, box).extent
        granules = self._granules[stream - len(self.inputs)]
        count = granules.count if granules.axis is None else granules.cover(0, tile[granules.axis])[1]
        return (count, granules.nbytes)

    def tile_cost(
        self, extent: Sequence[int], split_axis: int | None, residency: Residency, portion: tuple[int, ...] = ()
    ) -> SliceCost:
        """One tile on all slices; where a tile stands does not matter, its extents do.

        Args:
            extent: extents of the tile.
            split_axis: axis along which it is divided between the slices.
            residency: resident operands are walked with the strides of the whole tensor.
            portion: extents of a portion of the reduction; empty when it is not divided.
        """
        residency = self._as_far_as_it_matters(extent, residency)
        key, costs = (tuple(extent), split_axis, residency, portion), self._known.costs
        if key not in costs:
            tile = Region((0,) * len(self.shape), tuple(extent))
            step = 0 if split_axis is None else self.steps[split_axis]
            parts = split_between_slices(tile, split_axis, step, self.config.slices)
            kinds = portion_kinds(self.reduction, portion) if portion else [(None, 1)]
            costs[key] = _summed([(self._step_cost(tile, parts, residency, kind), times) for kind, times in kinds])
        return costs[key]

    def _step_cost(
        self, tile: Region, parts: Sequence[Region], residency: Residency, portion: Portion | None
    ) -> SliceCost:
        """A tile, or one portion of it, on all slices."""
        placements = self._placements(tile, residency, portion)
        kinds = [self._kind(part, portion) for part in parts]
        known: dict[Hashable, list[SliceTask]] = {}
        for kind, part in zip(kinds, parts, strict=True):
            if kind not in known:
                known[kind] = self._tasks(part, portion, *placements)
        jobs = [known[kind] for kind in kinds]
        self._known.planar |= any(task.plane is not None for tasks in jobs for task in tasks)
        return _slice_cost(jobs)

    def _kind(self, part: Region, portion: Portion | None) -> Hashable:
        """What the cost of a slice's part depends on: extents, not places; with several operands, which may be walked
        by their distance from one another, places as well."""
        if len(self.inputs) > 1:
            return part
        regions = self.input_regions(part, portion)
        counts = tuple(needed.count for needed in self.constant_parts(part))
        return (part.extent, tuple(region.extent for region in regions), counts)

    def _tasks(
        self,
        part: Region,
        portion: Portion | None,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        return tasks_of(self.kernel, self.graph, self.node, self.config, part, portion, output, inputs, constants)

    def rough_cost(
        self, extent: Sequence[int], split_axis: int | None, residency: Residency, portion: tuple[int, ...] = ()
    ) -> SliceCost:
        """Like ``tile_cost``; operators without a plane or products take the whole output's cost by size."""
        whole = self.tile_cost(self.shape, None, residency)
        if portion or self._known.planar or self.kernel.macs(self.graph, self.node):
            return self.tile_cost(extent, split_axis, residency, portion)
        tile = Region((0,) * len(self.shape), tuple(extent))
        step = 0 if split_axis is None else self.steps[split_axis]
        parts = split_between_slices(tile, split_axis, step, self.config.slices)
        cycles = math.ceil(whole.cycles * max(part.size for part in parts) / math.prod(self.shape))
        program_bytes = len(parts) * whole.program_bytes
        return SliceCost(cycles, len(parts), len(parts) * whole.tasks, program_bytes, program_bytes)

    def _as_far_as_it_matters(self, extent: Sequence[int], residency: Residency) -> Residency:
        """The residency as far as it changes slice cycles.

        Planar kernels walk each row by its pitch, so only tiles of cut rows see whose strides they have.
        """
        if self._known.planar and extent[-1] == self.shape[-1]:
            return Residency((False,) * len(self.inputs), False)
        return residency

    def _streams(self, packed: Sequence[PackedConstant]) -> tuple[Stream, ...]:
        streams = []
        for index, position in enumerate(self.inputs):
            name = self.node.inputs[position]
            nbytes = self._stored(index, self._whole_regions[index]) * self.graph.tensors[name].dtype.size
            streams.append(Stream(name, index, nbytes))
        return (*streams, *(Stream(constant.name, None, constant.data.size) for constant in packed))

    def _input_region(self, index: int, output: Region, portion: Portion | None = None) -> Region:
        return region_of(self.kernel, self.graph, self.node, self.inputs[index], output, portion)

    def _stored(self, index: int, region: Region) -> int:
        """Elements that a tile takes in LRAM: phase planes are padded to whole phases."""
        extent = list(region.extent)
        for axis, phase in zip((-2, -1), self._layouts[index].phases, strict=True):
            if phase > 1:
                extent[axis] = -(-extent[axis] // phase) * phase
        return math.prod(extent)

    def _tensor_parts(self, key: tuple[int, int, int], index: int) -> Cut:
        _, axis, tile = key
        regions = []
        for start in range(0, self.shape[axis], tile):
            box = Region.whole(self.shape)
            first, extent = list(box.start), list(box.extent)
            first[axis], extent[axis] = start, min(tile, self.shape[axis] - start)
            regions.append(self._input_region(index, Region(tuple(first), tuple(extent))))
        whole = self._stored(index, self._whole_regions[index])
        return _compare(regions, [self._stored(index, region) for region in regions], whole)

    def _constant_parts(self, stream: int, axis: int, tile: int) -> Cut:
        granules = self._granules[stream - len(self.inputs)]
        if granules.axis != axis:
            return WHOLE
        starts = range(0, self.shape[axis], tile)
        ranges = [granules.cover(start, min(tile, self.shape[axis] - start)) for start in starts]
        return _compare(ranges, [count for _, count in ranges], granules.count)

    def _placements(
        self, tile: Region, residency: Residency, portion: Portion | None
    ) -> tuple[Placement, list[Placement], list[ConstantPlacement]]:
        """Placements of the operands of a tile or of a portion of it; addresses do not enter the cost."""
        box = Region.whole(self.shape) if residency.output else tile
        output = dense(box, self.graph.tensors[self.node.output].dtype)
        inputs = []
        for index, position in enumerate(self.inputs):
            info = self.graph.tensors[self.node.inputs[position]]
            box = Region.whole(info.shape) if residency.inputs[index] else self._input_region(index, tile, portion)
            inputs.append(dense(box, info.dtype, self._layouts[index].phases))
        constants = [
            ConstantPlacement(0, part.first, part.count, granules.bytes_of(portion))
            for part, granules in zip(self.constant_parts(tile), self._granules, strict=True)
        ]
        return output, inputs, constants


def _part(granules: Granules, output: Region) -> ConstantPart:
    first, count = 0, granules.count
    if granules.axis is not None:
        first, count = granules.cover(output.start[granules.axis], output.extent[granules.axis])
    return ConstantPart(first, count, count * granules.nbytes)


def _slice_cost(jobs: Sequence[Sequence[SliceTask]]) -> SliceCost:
    cycles = max(sum(task_cycles(task) for task in tasks) for tasks in jobs)
    tasks = [task for job in jobs for task in job]
    program_bytes = sum(map(encoded_size, tasks))
    return SliceCost(cycles, len(jobs), len(tasks), program_bytes, program_bytes)


def _summed(steps: Sequence[tuple[SliceCost, int]]) -> SliceCost:
    """Costs of steps that follow one another, each with how often it occurs."""
    return SliceCost(
        sum(cost.cycles * times for cost, times in steps),
        sum(cost.jobs * times for cost, times in steps),
        sum(cost.tasks * times for cost, times in steps),
        sum(cost.program_bytes * times for cost, times in steps),
        max(cost.program_peak for cost, _ in steps),
    )


def _inside(extent: Sequence[int], largest: Sequence[int]) -> bool:
    return all(size <= most for size, most in zip(extent, largest, strict=True))


def _compare(parts: Sequence[object], sizes: Sequence[int], whole: int) -> Cut:
    """Sizes of an operand's parts against the whole; ``whole`` is 0 only for an operand nobody reads."""
    moves = any(before != after for before, after in itertools.pairwise(parts))
    if not moves or whole == 0:
        return WHOLE
    return Cut(True, sum(sizes) / whole, max(sizes) / whole, sizes[0] / whole, sizes[-1] / whole)
