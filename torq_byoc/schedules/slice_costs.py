"""The slice cycles and programs of a tile, asked from the kernel and remembered."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import msgspec

from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region
from torq_byoc.kernels.portion import Portion, tasks_of
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.encoding import encoded_size
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.timing import task_cycles
from torq_byoc.schedules.node_operands import NodeOperands, Residency
from torq_byoc.schedules.placements import dense
from torq_byoc.schedules.signature import signature
from torq_byoc.schedules.tiles import portion_kinds, split_between_slices


class SliceCost(msgspec.Struct, frozen=True, gc=False):
    """One tile on all slices: cycles of the slowest slice; slices at work, tasks and program bytes of all.

    Portions of the reduction are summed up, one after the other; ``program_peak`` is of the largest one.
    """

    cycles: int
    jobs: int
    tasks: int
    program_bytes: int
    program_peak: int


NOTHING_TO_DO = SliceCost(0, 0, 0, 0, 0)
"""The cost of a tile that no slice has to compute."""


@dataclass
class _KnownCosts:
    """Slice costs of one signature on one machine; ``planar`` once a task walked a plane that has borders."""

    costs: dict[Hashable, SliceCost] = field(default_factory=dict)
    planar: bool = False


@functools.lru_cache(maxsize=1024)
def known_costs(config: NpuConfig, key: Hashable) -> _KnownCosts:
    """The slice costs found so far, shared by all schedules of a process: compilers ask again and again."""
    del config, key
    return _KnownCosts()


class SliceCosts:
    """Slice costs of a node's tiles.

    Args:
        operands: of the node.
    """

    def __init__(self, operands: NodeOperands) -> None:
        self.operands = operands
        self._answers: dict[Hashable, SliceCost] = {}
        self._known = known_costs(operands.config, signature(operands.graph, operands.node))

    def tile_cost(
        self, tile: Region, split_axis: int | None, residency: Residency, portion: tuple[int, ...] = ()
    ) -> SliceCost:
        """One tile on all slices.

        Args:
            tile: the box of the output; where it stands matters as far as it reads more or less there.
            split_axis: axis along which it is divided between the slices.
            residency: resident operands are walked with the strides of the whole tensor.
            portion: extents of a portion of the reduction; empty when it is not divided.
        """
        asked = (tile, split_axis, residency, portion)
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._answers[asked] = self._found(*asked)
        return answer

    def _found(self, tile: Region, split_axis: int | None, residency: Residency, portion: tuple[int, ...]) -> SliceCost:
        """The cost of a tile from what is known of tiles like it."""
        operands = self.operands
        residency = self._as_far_as_it_matters(tile.extent, residency)
        reads = tuple(region.extent for region in operands.input_regions(tile))
        key, costs = (tile.extent, reads, split_axis, residency, portion), self._known.costs
        if key not in costs:
            step = 0 if split_axis is None else operands.steps[split_axis]
            parts = split_between_slices(tile, split_axis, step, operands.config.slices)
            kinds = portion_kinds(operands.reduction, portion) if portion else [(None, 1)]
            costs[key] = _summed([(self.step_cost(tile, parts, residency, kind), times) for kind, times in kinds])
        return costs[key]

    def step_cost(
        self, tile: Region, parts: Sequence[Region], residency: Residency, portion: Portion | None
    ) -> SliceCost:
        """A tile, or one portion of it, on all slices."""
        placements = self._placements(tile, residency, portion)
        kinds = [self._kind(part, portion, *placements[:2]) for part in parts]
        known: dict[Hashable, SliceCost] = {}
        for kind, part in zip(kinds, parts, strict=True):
            if kind not in known:
                tasks = self._tasks(part, portion, *placements)
                known[kind] = cost_of(tasks)
                if not self.operands.kernel.translates:
                    self._known.planar |= any(task.plane is not None for task in tasks)
        return side_by_side([known[kind] for kind in kinds])

    def _kind(self, part: Region, portion: Portion | None, output: Placement, inputs: Sequence[Placement]) -> Hashable:
        """What the cost of a slice's part depends on: extents, not places; with several operands, which may be walked
        by their distance from one another or from the result, those distances as well."""
        regions = self.operands.input_regions(part, portion)
        counts = tuple([needed.count for needed in self.operands.constant_parts(part)])
        extents = (part.extent, tuple([region.extent for region in regions]), counts)
        if len(inputs) < 2:
            return extents
        if any(placed.phases != (1, 1) for placed in (output, *inputs)):
            return part
        first = output.offset_of(part.start)
        starts = zip(inputs, regions, strict=True)
        return (*extents, tuple([placed.offset_of(region.start) - first for placed, region in starts]))

    def _tasks(
        self,
        part: Region,
        portion: Portion | None,
        output: Placement,
        inputs: Sequence[Placement],
        constants: Sequence[ConstantPlacement],
    ) -> list[SliceTask]:
        of = self.operands
        return tasks_of(of.kernel, of.graph, of.node, of.config, part, portion, output, inputs, constants)

    def rough_cost(
        self, tile: Region, split_axis: int | None, residency: Residency, portion: tuple[int, ...] = ()
    ) -> SliceCost:
        """Like ``tile_cost``; operators without a plane or products take the whole output's cost by size."""
        operands = self.operands
        box = Region.whole(operands.shape)
        whole = self.tile_cost(box, None, residency)
        if portion or self._known.planar or operands.kernel.macs(operands.graph, operands.node):
            return self.tile_cost(tile, split_axis, residency, portion)
        step = 0 if split_axis is None else operands.steps[split_axis]
        parts = split_between_slices(tile, split_axis, step, operands.config.slices)
        cycles = math.ceil(whole.cycles * max(part.size for part in parts) / box.size)
        program_bytes = len(parts) * whole.program_bytes
        return SliceCost(cycles, len(parts), len(parts) * whole.tasks, program_bytes, program_bytes)

    def _as_far_as_it_matters(self, extent: Sequence[int], residency: Residency) -> Residency:
        """The residency as far as it changes slice cycles.

        Planar kernels walk each row by its pitch, so only tiles of cut rows see whose strides they have.
        """
        if self._known.planar and extent[-1] == self.operands.shape[-1]:
            return self.operands.streamed
        return residency

    def _placements(
        self, tile: Region, residency: Residency, portion: Portion | None
    ) -> tuple[Placement, list[Placement], list[ConstantPlacement]]:
        """Placements of the operands of a tile or of a portion of it; addresses do not enter the cost."""
        box = Region.whole(self.operands.shape) if residency.output else tile
        output = dense(box, self.operands.graph.tensors[self.operands.node.output].dtype)
        inputs = []
        for index, position in enumerate(self.operands.inputs):
            info = self.operands.graph.tensors[self.operands.node.inputs[position]]
            box = (
                Region.whole(info.shape)
                if residency.inputs[index]
                else self.operands.input_region(index, tile, portion)
            )
            inputs.append(dense(box, info.dtype, self.operands.layout(index).phases))
        constants = [
            ConstantPlacement(0, part.first, part.count, granules.bytes_of(portion))
            for part, granules in zip(self.operands.constant_parts(tile), self.operands.granules, strict=True)
        ]
        return output, inputs, constants


def cost_of(tasks: Sequence[SliceTask]) -> SliceCost:
    """What tasks of one slice cost."""
    program_bytes = sum(map(encoded_size, tasks))
    return SliceCost(sum(map(task_cycles, tasks)), 1, len(tasks), program_bytes, program_bytes)


def side_by_side(jobs: Sequence[SliceCost]) -> SliceCost:
    """Costs of what the slices do at once, each with a program of its own."""
    program_bytes = sum(cost.program_bytes for cost in jobs)
    cycles = max(cost.cycles for cost in jobs)
    return SliceCost(cycles, len(jobs), sum(cost.tasks for cost in jobs), program_bytes, program_bytes)


def _summed(steps: Sequence[tuple[SliceCost, int]]) -> SliceCost:
    """Costs of steps that follow one another, each with how often it occurs."""
    return SliceCost(
        sum(cost.cycles * times for cost, times in steps),
        sum(cost.jobs * times for cost, times in steps),
        sum(cost.tasks * times for cost, times in steps),
        sum(cost.program_bytes * times for cost, times in steps),
        max(cost.program_peak for cost, _ in steps),
    )
