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
    """One band: for every node its tile, or None, and the part of each tensor that lies in LRAM meanwhile."""

    tiles: tuple[Tile | None, ...]
    held: Mapping[str, Region]


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
    cut = BandCut(decision.axis, decision.size, decision.outer)
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
    tiles: list[Tile | None] = []
    for position, (output, axis) in enumerate(zip(found.outputs, decision.split_axes, strict=True)):
        if output is None:
            tiles.append(None)
            continue
        model = segment.models[position]
        parts = split_between_slices(output, axis, 0 if axis is None else model.steps[axis], model.config.slices)
        tiles.append(Tile(output, tuple(input_regions(position, output)), parts))
    return GroupBand(tuple(tiles), found.held)
