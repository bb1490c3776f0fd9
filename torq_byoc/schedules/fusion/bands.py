"""Which part of every tensor a band of a fused group needs: regions carried back from its results to its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.fusion.reshaped import reshaped
from torq_byoc.schedules.fusion.segment import DENSE, Segment
from torq_byoc.schedules.tiles import hull

InputRegions = Callable[[int, Region], Sequence[Region]]
"""(index of a node, a box of its output) -> the part of each of its inputs that the box reads."""


@dataclass(frozen=True)
class Band:
    """One band of a group.

    Attributes:
        outputs: for every node the box of its output that the band computes; None where it computes nothing.
        held: for every tensor that a node of the group makes or reads, the part of it that lies in LRAM; boxes of the
            shape in which it is made.
    """

    outputs: tuple[Region | None, ...]
    held: Mapping[str, Region]


def band_count(segment: Segment, axis: int, size: int) -> int:
    """Number of bands when the last output is cut along ``axis`` into parts of ``size``."""
    return -(-segment.last.shape[axis] // size)


def band(segment: Segment, axis: int, size: int, index: int, input_regions: InputRegions) -> Band | None:
    """Band ``index`` of a group; None when some tensor cannot be divided so.

    Neighbouring bands overlap where windows reach into each other's rows: the overlap is computed twice.

    Args:
        segment: the nodes.
        axis, size: how the last node's output is cut.
        index: which band.
        input_regions: reads of a node.
    """
    count = band_count(segment, axis, size)
    held: dict[str, Region] = {}
    outputs: list[Region | None] = [None] * len(segment.nodes)
    for position in reversed(range(len(segment.nodes))):
        model, name = segment.models[position], segment.nodes[position].output
        wanted = held.get(name)
        if name in segment.outputs or position == len(segment.nodes) - 1:
            own = _share(model.shape, model.steps, axis, index, count, size if model is segment.last else 0)
            if own is None:
                return None
            wanted = hull(wanted, own)
        if wanted is None or not wanted.size:
            continue
        output = _aligned(wanted, model.shape, model.steps, segment.phases.get(name, DENSE))
        outputs[position] = held[name] = output
        reads = zip(segment.names[position], segment.views[position], input_regions(position, output), strict=True)
        for read, view, region in reads:
            if region.size:
                held[read] = hull(held.get(read), reshaped(region, view, segment.shapes[read]))
    return Band(tuple(outputs), held) if _dense_in_all_views(segment, held) else None


def _dense_in_all_views(segment: Segment, held: Mapping[str, Region]) -> bool:
    """Whether each held part is a whole box under every shape that it is read in."""
    return all(
        reshaped(held[name], segment.shapes[name], view).size == held[name].size
        for names, views in zip(segment.names, segment.views, strict=True)
        for name, view in zip(names, views, strict=True)
        if name in held and view != segment.shapes[name]
    )


def _share(shape: Sequence[int], steps: Sequence[int], axis: int, index: int, count: int, size: int) -> Region | None:
    """The part of an output that band ``index`` of ``count`` must deliver: bands of ``size``, or even ones."""
    if axis >= len(shape) or (steps[axis] == 0 and count > 1):
        return None
    step = max(steps[axis], 1)
    size = size or step * math.ceil(shape[axis] / step / count)
    start = min(index * size, shape[axis])
    begin, extent = [0] * len(shape), list(shape)
    begin[axis], extent[axis] = start, min(size, shape[axis] - start)
    return Region(tuple(begin), tuple(extent))


def _aligned(region: Region, shape: Sequence[int], steps: Sequence[int], phases: tuple[int, int]) -> Region:
    """The box widened to where its node may be cut, and to whole stride phases."""
    units = [step or extent for step, extent in zip(steps, shape, strict=True)]
    if phases != DENSE:
        units[-2:] = [math.lcm(unit, phase) for unit, phase in zip(units[-2:], phases, strict=True)]
    starts, extents = [], []
    for first, extent, whole, unit in zip(region.start, region.extent, shape, units, strict=True):
        start = first - first % unit
        end = first + extent
        end += -end % unit
        starts.append(start)
        extents.append((end if end < whole else whole) - start)
    return Region(tuple(starts), tuple(extents))
