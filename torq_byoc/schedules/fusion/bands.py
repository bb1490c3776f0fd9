"""Which part of every tensor a band of a fused group needs: regions carried back from its results to its inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import msgspec

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.fusion.reshaped import reshaped
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.record import GroupDecision, GroupParts
from torq_byoc.schedules.tiles import hull

InputRegions = Callable[[int, Region], Sequence[Region]]
"""(index of a node, a box of its output) -> the part of each of its inputs that the box reads."""


class BandCut(msgspec.Struct, frozen=True, gc=False):
    """How the last output of a group is cut into bands.

    Attributes:
        axis, size: bands of ``size`` along an axis.
        outer: axis of which every step has bands of its own, those of one step after those of the one before: what is
            needed of an operand that is divided along it stays while the bands along ``axis`` go by.  None for none.
        parts: nodes that go through a band part by part; None for none.
    """

    axis: int
    size: int
    outer: int | None = None
    parts: GroupParts | None = None

    @classmethod
    def of(cls, decision: GroupDecision) -> BandCut:
        """The cut of a decision."""
        return cls(decision.axis, decision.size, decision.outer, decision.parts)

    def run(self, shape: Sequence[int]) -> int:
        """Number of bands along ``axis``, which follow one another."""
        return -(-shape[self.axis] // self.size)

    def runs(self, shape: Sequence[int], steps: Sequence[int]) -> int:
        """How often that happens: steps of the outer axis, or 1."""
        return 1 if self.outer is None else -(-shape[self.outer] // max(steps[self.outer], 1))


class Band(msgspec.Struct, frozen=True, eq=False):
    """One band of a group.

    Attributes:
        outputs: for every node the box of its output that the band computes; None where it computes nothing.
        held: for every tensor that a node of the group makes or reads, the part of it that lies in LRAM; boxes of the
            shape in which it is made.  Of a tensor that exists one part at a time, the first part.
        steps: nodes and the boxes that they compute, in execution order: once a node, or once a part.
    """

    outputs: tuple[Region | None, ...]
    held: Mapping[str, Region]
    steps: tuple[tuple[int, Region], ...]


def band_count(segment: Segment, cut: BandCut) -> int:
    """Number of bands of a cut of the last output."""
    shape, steps = segment.last.shape, segment.last.steps
    return cut.run(shape) * cut.runs(shape, steps)


def band(segment: Segment, cut: BandCut, index: int, input_regions: InputRegions) -> Band | None:
    """Band ``index`` of a group; None when some tensor cannot be divided so.

    Neighbouring bands overlap where windows reach into each other's rows: the overlap is computed twice.

    Args:
        segment: the nodes.
        cut: how the last node's output is cut.
        index: which band.
        input_regions: reads of a node.
    """
    wanted: dict[int, Region] = {}
    for position in range(len(segment.nodes)):
        if segment.delivers(position):
            own = share(segment, position, cut, index)
            if own is None:
                return None
            wanted[position] = own
    found, held = carried_back(segment, range(len(segment.nodes)), wanted, input_regions)
    return completed(segment, cut, found, held, input_regions)


def completed(
    segment: Segment,
    cut: BandCut,
    found: Mapping[int, Region],
    held: Mapping[str, Region],
    input_regions: InputRegions,
) -> Band | None:
    """The band of what was carried back; None when some tensor cannot be divided so.

    Args:
        segment: the nodes.
        cut: how the last node's output is cut.
        found: the boxes that nodes compute, in execution order.
        held: the part of every tensor that lies in LRAM.
        input_regions: reads of a node.
    """
    if segment.reshapes and not _dense_in_all_views(segment, held):
        return None
    outputs = tuple(found.get(position) for position in range(len(segment.nodes)))
    whole = Band(outputs, held, tuple(found.items()))
    return whole if cut.parts is None else _part_by_part(segment, cut.parts, whole, input_regions)


def carried_back(
    segment: Segment, positions: range, wanted: Mapping[int, Region], input_regions: InputRegions
) -> tuple[dict[int, Region], dict[str, Region]]:
    """What nodes compute, and hold of every tensor, so that some of them deliver what is wanted.

    Args:
        segment: the nodes.
        positions: those that take part.
        wanted: the boxes that nodes must deliver at least.
        input_regions: reads of a node.

    Returns:
        The boxes by node, in execution order, and by tensor.
    """
    held: dict[str, Region] = {}
    outputs: dict[int, Region] = {}
    for position in reversed(positions):
        output = step_back(segment, position, wanted.get(position), held, input_regions)
        if output is not None:
            outputs[position] = output
    return dict(reversed(outputs.items())), held


def step_back(
    segment: Segment,
    position: int,
    wanted: Region | None,
    held: MutableMapping[str, Region],
    input_regions: InputRegions,
) -> Region | None:
    """What a node computes for what the nodes behind it hold; None where that is nothing.

    Args:
        segment: the nodes.
        position: which node.
        wanted: the box that it must deliver at least, if any.
        held: what the nodes behind it hold of every tensor; what this one holds is added.
        input_regions: reads of a node.
    """
    model, name = segment.models[position], segment.nodes[position].output
    needed = held.get(name)
    if wanted is not None:
        needed = hull(needed, wanted)
    if needed is None or 0 in needed.extent:
        return None
    output = held[name] = _aligned(needed, model.shape, segment.units[position])
    reads = zip(segment.names[position], segment.views[position], input_regions(position, output), strict=True)
    for read, view, region in reads:
        if 0 in region.extent:
            continue
        shape = segment.shapes[read]
        box = region if view == shape else reshaped(region, view, shape)
        known = held.get(read)
        held[read] = box if known is None else hull(known, box)
    return output


def _part_by_part(segment: Segment, cut: GroupParts, found: Band, input_regions: InputRegions) -> Band | None:
    """The band with some of its nodes part by part.

    None when they cannot be: parts overlap or are not all of the band, or some node has nothing to do for one.
    """
    whole = found.outputs[cut.last] if segment.can_part(cut.first, cut.last) else None
    if whole is None:
        return None
    inside = range(cut.first, cut.last + 1)
    carried = [carried_back(segment, inside, {cut.last: box}, input_regions) for box in _divided(whole, cut)]
    for position in inside:
        box = found.outputs[position]
        boxes = [outputs[position] for outputs, _ in carried if position in outputs]
        if box is None or len(boxes) < len(carried) or sum(part.size for part in boxes) != box.size:
            return None
    passed_on = {segment.nodes[position].output: carried[0][0][position] for position in inside[:-1]}
    steps = [step for step in found.steps if step[0] < cut.first]
    steps += [step for outputs, _ in carried for step in outputs.items()]
    steps += [step for step in found.steps if step[0] > cut.last]
    return Band(found.outputs, {**found.held, **passed_on}, tuple(steps))


def _divided(box: Region, cut: GroupParts) -> list[Region]:
    """The parts of a box, at multiples of their size."""
    start, end = box.start[cut.axis], box.start[cut.axis] + box.extent[cut.axis]
    edges = [start, *range(start - start % cut.size + cut.size, end, cut.size), end]
    return [
        Region(
            (*box.start[: cut.axis], low, *box.start[cut.axis + 1 :]),
            (*box.extent[: cut.axis], high - low, *box.extent[cut.axis + 1 :]),
        )
        for low, high in itertools.pairwise(edges)
    ]


def _dense_in_all_views(segment: Segment, held: Mapping[str, Region]) -> bool:
    """Whether each held part is a whole box under every shape that it is read in."""
    return all(
        reshaped(held[name], segment.shapes[name], view).size == held[name].size
        for name, view in segment.reshapes
        if name in held
    )


def share(segment: Segment, position: int, cut: BandCut, index: int) -> Region | None:
    """The part of a node's output that band ``index`` must deliver: as the cut says, even ones of all but the last.
    None when the output cannot be divided so."""
    model, last = segment.models[position], segment.last
    run, runs = cut.run(last.shape), cut.runs(last.shape, last.steps)
    begin, extent = [0] * len(model.shape), list(model.shape)
    for axis, place, count, size in ((cut.outer, index // run, runs, 0), (cut.axis, index % run, run, cut.size)):
        if axis is None:
            continue
        if axis >= len(model.shape) or (model.steps[axis] == 0 and count > 1):
            return None
        step = max(model.steps[axis], 1)
        if not size or model is not last:
            size = step * math.ceil(model.shape[axis] / step / count)
        begin[axis] = min(place * size, model.shape[axis])
        extent[axis] = min(size, model.shape[axis] - begin[axis])
    return Region(tuple(begin), tuple(extent))


def _aligned(region: Region, shape: Sequence[int], units: Sequence[tuple[int, int]]) -> Region:
    """The box widened along some axes to multiples of their units, but for the end of the tensor."""
    if not units:
        return region
    starts, extents = list(region.start), list(region.extent)
    for axis, unit in units:
        first, end, whole = starts[axis], starts[axis] + extents[axis], shape[axis]
        first -= first % unit
        end += -end % unit
        starts[axis], extents[axis] = first, (end if end < whole else whole) - first
    return Region(tuple(starts), tuple(extents))
