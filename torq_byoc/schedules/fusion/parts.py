"""Which nodes of a segment are worth running part by part within a band.

An expansion, a depthwise convolution and a projection, for example: the first two work channel by channel, the third
one sums over all of them.  Part by part, the widest tensor, between the first two, exists a few channels at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.record import GroupParts

COUNTS = (2, 3, 4, 6, 8)
"""Numbers of parts that are tried."""
MOST_BESIDE = 3
"""Nodes of a group that may run beside those that go part by part: in longer ones other tensors are as wide."""


def part_options(segment: Segment) -> tuple[tuple[GroupParts, ...], ...]:
    """The run of nodes that passes on most inside, in more and more parts: weights kept, weights loaded anew.

    Empty where no two nodes work part by part for a reader that needs all parts.
    """
    inner = range(1, len(segment.nodes) - 1) if not segment.reshapes else ()
    runs = [run for last in inner for run in _runs(segment, last)]
    if not runs:
        return ()
    first, last, axis = max(runs, key=lambda run: _passed_on(segment, run))
    if len(segment.nodes) - (last - first + 1) > MOST_BESIDE:
        return ()
    return tuple(
        tuple(GroupParts(first, last, axis, size, keep) for size in _sizes(segment, (first, last, axis)))
        for keep in (True, False)
    )


def _runs(segment: Segment, last: int) -> Iterator[tuple[int, int, int]]:
    """First node, last node and axis of every longest run that ends here."""
    model = segment.models[last]
    for axis, step in enumerate(model.steps):
        if not 0 < step < model.shape[axis] or not _read_whole(segment, last, axis):
            continue
        first = last
        while first and _follows(segment, first, axis) and segment.can_part(first - 1, last):
            first -= 1
        if first < last:
            yield first, last, axis


def _read_whole(segment: Segment, maker: int, axis: int) -> bool:
    """Whether some later node needs all of a result along an axis for whatever it computes."""
    name = segment.nodes[maker].output
    return any(
        read == name and model.input_region(index, _smallest(model)).extent[axis] == segment.shapes[name][axis]
        for names, model in zip(segment.names[maker + 1 :], segment.models[maker + 1 :], strict=True)
        for index, read in enumerate(names)
    )


def _smallest(model: NodeModel) -> Region:
    """The least that a node computes at once."""
    extent = (min(step or size, size) for step, size in zip(model.steps, model.shape, strict=True))
    return Region((0,) * len(model.shape), tuple(extent))


def _follows(segment: Segment, reader: int, axis: int) -> bool:
    """Whether a node reads another part of the result before it for another part of its own along an axis."""
    names, made, model = segment.names[reader], segment.nodes[reader - 1].output, segment.models[reader]
    return axis < len(segment.shapes[made]) and any(
        name == made and model.moves(index, axis) for index, name in enumerate(names)
    )


def _passed_on(segment: Segment, run: tuple[int, int, int]) -> int:
    """Elements that nodes of a run pass on to one another."""
    first, last, _ = run
    return sum(math.prod(model.shape) for model in segment.models[first:last])


def _sizes(segment: Segment, run: tuple[int, int, int]) -> list[int]:
    """Extents of parts, the largest first: multiples of what all nodes can be cut at."""
    first, last, axis = run
    unit = math.lcm(*(max(model.steps[axis], 1) for model in segment.models[first : last + 1]))
    steps = -(-segment.models[last].shape[axis] // unit)
    return sorted({unit * -(-steps // count) for count in COUNTS if count <= steps}, reverse=True)
