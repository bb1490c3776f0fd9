"""A part of a tensor seen under another shape: the same elements, in row-major order."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from torq_byoc.kernels.kernel import Region


def reshaped(box: Region, shape: tuple[int, ...], target: tuple[int, ...]) -> Region:
    """The smallest box of a tensor reshaped to ``target`` that holds all elements of a box of it.

    Where the result has as many elements as the box, a dense tile of one is a dense tile of the other, byte by byte.

    Args:
        box: a part of the tensor.
        shape: the shape that the box refers to.
        target: another shape of as many elements.
    """
    if not box.size:
        return Region((0,) * len(target), (0,) * len(target))
    if shape == target:
        return box
    start: list[int] = []
    extent: list[int] = []
    for here, there in _axis_groups(shape, target):
        first, last = _flat_range(box.start[here], box.extent[here], shape[here])
        begin, size = _box_of_range(first, last, target[there])
        start += begin
        extent += size
    return Region(tuple(start), tuple(extent))


@functools.lru_cache(maxsize=1024)
def _axis_groups(shape: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Runs of axes of both shapes that hold the same number of elements, as short as possible."""
    groups = []
    here = there = 0
    while here < len(shape) or there < len(target):
        first, second = here, there
        left = right = 1
        while (here, there) == (first, second) or left != right:
            if left <= right and here < len(shape):
                left *= shape[here]
                here += 1
            else:
                right *= target[there]
                there += 1
        groups.append((slice(first, here), slice(second, there)))
    return groups


def _flat_range(start: Sequence[int], extent: Sequence[int], shape: Sequence[int]) -> tuple[int, int]:
    """Row-major positions of the first and the last element of a box."""
    first = last = 0
    for begin, size, whole in zip(start, extent, shape, strict=True):
        first, last = first * whole + begin, last * whole + begin + size - 1
    return first, last


def _box_of_range(first: int, last: int, shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """The smallest box that holds all row-major positions from ``first`` to ``last``."""
    start, extent = [], []
    for axis in range(len(shape)):
        inner = math.prod(shape[axis + 1 :])
        begin, end = first // inner, last // inner
        start.append(begin)
        extent.append(end - begin + 1)
        if end > begin:
            rest = list(shape[axis + 1 :])
            return start + [0] * len(rest), extent + rest
        first, last = first - begin * inner, last - begin * inner
    return start, extent
