"""The tiles of a decision: boxes of the output in execution order, and their division between slices."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec

from torq_byoc.kernels.kernel import Region
from torq_byoc.kernels.portion import Portion
from torq_byoc.schedules.record import NodeDecision


class Tile(msgspec.Struct, frozen=True, gc=False):
    """One step of a node.

    Attributes:
        output: the box of the output that this tile computes.
        inputs: for every position of ``kernel.tensor_inputs``, the part of that tensor it reads, clipped
            to the tensor (and starting at a phase where the kernel wants phases).
        parts: the output box divided between the slices, disjoint, at most one a slice.
        portion: the part of the reduction that this step folds into the sums of the box; None folds all of it.
            The portions of a box follow one another, and the last one writes the output.
        packed: the box of the output whose packed constants are loaded together; None for the tile's own.
    """

    output: Region
    inputs: tuple[Region, ...]
    parts: tuple[Region, ...]
    portion: Portion | None = None
    packed: Region | None = None


def tile_counts(shape: Sequence[int], tile: Sequence[int]) -> tuple[int, ...]:
    """Number of tiles along every axis."""
    return tuple(-(-extent // size) for extent, size in zip(shape, tile, strict=True))


def output_regions(shape: Sequence[int], decision: NodeDecision) -> list[Region]:
    """The output's tiles in execution order; the last one of an axis is clipped to the tensor."""
    counts = tile_counts(shape, decision.tile)
    regions = []
    for position in itertools.product(*(range(counts[axis]) for axis in decision.order)):
        start, extent = [0] * len(shape), list(shape)
        for axis, index in zip(decision.order, position, strict=True):
            size = decision.tile[axis]
            start[axis] = index * size
            extent[axis] = min(size, shape[axis] - index * size)
        regions.append(Region(tuple(start), tuple(extent)))
    return regions


def portions_of(reduction: Sequence[int], portion: Sequence[int]) -> tuple[Portion, ...]:
    """The portions of a reduction in row-major order, so that terms are folded in their own order.

    Args:
        reduction: extents of the reduction axes.
        portion: extents of a full portion, 1 on all axes outside the one that is cut.
    """
    starts = list(itertools.product(*(range(0, n, size) for n, size in zip(reduction, portion, strict=True))))
    found = []
    for number, start in enumerate(starts):
        extent = tuple(min(size, n - first) for first, n, size in zip(start, reduction, portion, strict=True))
        found.append(Portion(Region(start, extent), number == 0, number == len(starts) - 1))
    return tuple(found)


def portion_kinds(reduction: Sequence[int], portion: Sequence[int]) -> list[tuple[Portion, int]]:
    """The portions that differ in more than their place, as if each stood at the start, and how often they occur."""
    kinds = Counter((part.box.extent, part.first, part.last) for part in portions_of(reduction, portion))
    origin = (0,) * len(reduction)
    return [(Portion(Region(origin, extent), first, last), times) for (extent, first, last), times in kinds.items()]


def split_between_slices(region: Region, axis: int | None, step: int, slices: int) -> tuple[Region, ...]:
    """Divide a box along one axis at multiples of ``step`` into at most ``slices`` even parts.

    Args:
        region: a box whose start along ``axis`` is a multiple of ``step``.
        axis: None keeps the box whole.
        step: granularity of the cut; 0 keeps the box whole.
        slices: number of slices of the machine.

    Returns:
        One to ``slices`` parts in ascending order; fewer when there are not enough steps to share.
    """
    if axis is None or step == 0 or slices == 1:
        return (region,)
    units = -(-region.extent[axis] // step)
    parts = min(slices, units)
    bounds = [min(step * (units * part // parts), region.extent[axis]) for part in range(parts + 1)]
    return tuple(_along(region, axis, first, last - first) for first, last in itertools.pairwise(bounds))


def hull(a: Region | None, b: Region) -> Region:
    """The smallest box around both; an empty box adds nothing."""
    if a is None or a == b or 0 in a.extent:
        return b
    if 0 in b.extent:
        return a
    starts, extents = [], []
    for x, m, y, n in zip(a.start, a.extent, b.start, b.extent, strict=True):
        start = min(x, y)
        starts.append(start)
        extents.append(max(x + m, y + n) - start)
    return Region(tuple(starts), tuple(extents))


def overlap(a: Region, b: Region) -> bool:
    """Whether two boxes of one tensor have elements in common."""
    pairs = zip(a.start, a.extent, b.start, b.extent, strict=True)
    return all(x < y + n and y < x + m for x, m, y, n in pairs)


def _along(region: Region, axis: int, offset: int, extent: int) -> Region:
    start, size = list(region.start), list(region.extent)
    start[axis] += offset
    size[axis] = extent
    return Region(tuple(start), tuple(size))
