"""A fused group as plain data for code generation: bands of tiles, and what each band holds in LRAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.errors import ScheduleError
from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.fusion.bands import Band, BandCut, InputRegions, band, band_count
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.node_tiles import box_inputs
from torq_byoc.schedules.record import GroupDecision
from torq_byoc.schedules.tiles import Tile, split_between_slices


@dataclass(frozen=True)
class GroupBand:
    """One band: tiles in execution order, each with the position of its node, and the part of each tensor that lies in
    LRAM meanwhile."""

    steps: tuple[tuple[int, Tile], ...]
    held: Mapping[str, Region]

    def tiles(self, position: int) -> tuple[Tile, ...]:
        """The tiles of a node, none where it computes nothing."""
        return tuple(tile for node, tile in self.steps if node == position)


@dataclass(frozen=True)
class FusedGroup:
    """Nodes that run band by band.

    Attributes:
        nodes: names in execution order.
        bands: in execution order.
        kept: tensors that never leave LRAM.
        phases: for held tensors that do not lie densely, their stride phases.
    """

    nodes: tuple[str, ...]
    bands: tuple[GroupBand, ...]
    kept: frozenset[str]
    phases: Mapping[str, tuple[int, int]]


def fused_group(segment: Segment, decision: GroupDecision) -> FusedGroup:
    """Apply a decision to a segment.

    Raises:
        ScheduleError: the segment cannot be divided along that axis.
    """

    def input_regions(position: int, output: Region) -> Sequence[Region]:
        return box_inputs(segment.models[position], output)

    bands = []
    cut = BandCut.of(decision)
    for index in range(band_count(segment, cut)):
        found = band(segment, cut, index, input_regions)
        if found is None:
            raise ScheduleError(
                "a group cannot be cut along this axis",
                where=f"group of {', '.join(decision.nodes)}",
                why=f"some result that is needed outside has no axis {decision.axis} that may be cut",
                remedy="choose another axis, or leave the groups to the search",
            )
        bands.append(_with_tiles(segment, found, decision, input_regions))
    return FusedGroup(decision.nodes, tuple(bands), segment.kept, segment.phases)


def _with_tiles(segment: Segment, found: Band, decision: GroupDecision, input_regions: InputRegions) -> GroupBand:
    steps, parts = [], decision.parts
    for position, output in found.steps:
        model, axis = segment.models[position], decision.split_axes[position]
        shares = split_between_slices(output, axis, 0 if axis is None else model.steps[axis], model.config.slices)
        kept = parts is not None and parts.keep and parts.has(position)
        packed = found.outputs[position] if kept else None
        steps.append((position, Tile(output, tuple(input_regions(position, output)), shares, packed=packed)))
    return GroupBand(tuple(steps), found.held)
