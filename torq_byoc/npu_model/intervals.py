"""Sets of bytes as sorted, disjoint, non-touching half-open intervals: int64[n, 2]."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

EMPTY = np.zeros((0, 2), np.int64)

_ENUMERATE_LIMIT = 1 << 18
_SPAN_LIMIT = 1 << 26
_LOOP_LIMIT = 32


def interval(start: int, end: int) -> np.ndarray:
    """The bytes start..end-1; the empty set when there are none."""
    return np.array([[start, end]], np.int64) if end > start else EMPTY


def merge(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The union of the intervals [starts[k], ends[k]), none of them empty."""
    if starts.size == 0:
        return EMPTY
    if starts.size == 1:
        return np.array([[starts[0], ends[0]]], np.int64)
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    gaps = (starts[1:] > reach[:-1]).nonzero()[0]
    merged = np.empty((gaps.size + 1, 2), np.int64)
    merged[0, 0], merged[1:, 0] = starts[0], starts[gaps + 1]
    merged[:-1, 1], merged[-1, 1] = reach[gaps], reach[-1]
    return merged


def union(sets: Iterable[np.ndarray]) -> np.ndarray:
    """The union of several sets."""
    parts = [part for part in sets if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    joined = np.concatenate(parts)
    return merge(joined[:, 0], joined[:, 1])


def size(intervals: np.ndarray) -> int:
    """Bytes in the set."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def assign(memory: np.ndarray, touched: np.ndarray, value: int) -> None:
    """Set the elements of an array, one a byte, that belong to a set."""
    if len(touched) <= _LOOP_LIMIT:
        for start, end in touched.tolist():
            memory[start:end] = value
        return
    evenly = _evenly_spaced(memory, touched)
    if evenly is not None:
        evenly[...] = value
    else:
        memory[int(touched[0, 0]) : int(touched[-1, 1])][_mask(touched)] = value


def _evenly_spaced(memory: np.ndarray, touched: np.ndarray) -> np.ndarray | None:
    """The elements that belong to equally long intervals at equal distances, as [interval, element]; None for other
    sets."""
    starts, sizes = touched[:, 0], touched[:, 1] - touched[:, 0]
    steps = np.diff(starts)
    if (steps != steps[0]).any() or (sizes != sizes[0]).any():
        return None
    shape, item = (len(touched), int(sizes[0])), memory.itemsize
    return np.ndarray(shape, memory.dtype, memory, int(starts[0]) * item, (int(steps[0]) * item, item))


def select(memory: np.ndarray, touched: np.ndarray) -> np.ndarray:
    """The elements of an array, one a byte, that belong to a set."""
    if not len(touched):
        return memory[:0]
    hull = memory[int(touched[0, 0]) : int(touched[-1, 1])]
    return hull if len(touched) == 1 else hull[_mask(touched)]


def _mask(touched: np.ndarray) -> np.ndarray:
    """Which bytes between the first and the last of a set belong to it."""
    low = int(touched[0, 0])
    edges = np.zeros(int(touched[-1, 1]) - low + 1, np.int8)
    edges[touched[:, 0] - low] = 1
    edges[touched[:, 1] - low] = -1
    return np.cumsum(edges[:-1], dtype=np.int8).view(bool)


def first_common(left: np.ndarray, right: np.ndarray) -> tuple[int, int] | None:
    """The first interval of bytes that are in both sets, or None."""
    if not len(left) or not len(right) or left[-1, 1] <= right[0, 0] or right[-1, 1] <= left[0, 0]:
        return None
    begun = right[:, 0].searchsorted(left[:, 1])
    over = right[:, 1].searchsorted(left[:, 0], side="right")
    hits = (begun > over).nonzero()[0]
    if not hits.size:
        return None
    start, end = left[hits[0]].tolist()
    low, high = right[over[hits[0]]].tolist()
    return max(start, low), min(end, high)


def first_outside(inner: np.ndarray, outer: np.ndarray) -> tuple[int, int] | None:
    """The first interval of a set that is not wholly in another set, or None."""
    if not len(inner):
        return None
    if not len(outer):
        return int(inner[0, 0]), int(inner[0, 1])
    around = np.searchsorted(outer[:, 0], inner[:, 0], side="right") - 1
    hits = np.flatnonzero((around < 0) | (outer[np.maximum(around, 0), 1] < inner[:, 1]))
    return (int(inner[hits[0], 0]), int(inner[hits[0], 1])) if hits.size else None


def spread(runs: np.ndarray, dims: Iterable[tuple[int, int]]) -> np.ndarray:
    """The union of a set's copies displaced by all sums of index x stride, index below count, over the dims.

    Args:
        runs: the set to copy.
        dims: (count, stride in bytes) pairs; strides may be negative or 0.

    Raises:
        ValueError: the copies span more bytes than any memory of the machine has.
    """
    moving = [(count, stride) for count, stride in dims if count > 1 and stride]
    if not len(runs) or not moving:
        return runs
    span = sum((count - 1) * abs(stride) for count, stride in moving)
    if span > _SPAN_LIMIT:
        raise ValueError(f"an operand spans {span} bytes")
    runs = runs + sum((count - 1) * stride for count, stride in moving if stride < 0)
    apart: list[tuple[int, int]] = []
    for stride, count in sorted((abs(stride), count) for count, stride in moving):
        if not apart and len(runs) == 1 and stride <= runs[0, 1] - runs[0, 0]:
            runs = np.array([[runs[0, 0], runs[0, 1] + stride * (count - 1)]], np.int64)
        elif apart and stride % apart[-1][0] == 0 and stride // apart[-1][0] <= apart[-1][1]:
            step, length = apart[-1]
            apart[-1] = (step, (count - 1) * (stride // step) + length)
        else:
            apart.append((stride, count))
    for stride, count in apart:
        runs = _repeat(runs, stride, count)
    return runs


def _repeat(runs: np.ndarray, stride: int, count: int) -> np.ndarray:
    """Copies of a set at 0, stride, ..., (count - 1) x stride, by doubling when there are many."""
    if len(runs) * count <= _ENUMERATE_LIMIT:
        return _displaced(runs, np.arange(count, dtype=np.int64) * stride)
    have = 1
    while have < count:
        step = min(have, count - have)
        runs = _displaced(runs, np.array([0, step * stride], np.int64))
        have += step
    return runs


def _displaced(runs: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    copies = runs[None, :, :] + offsets[:, None, None]
    return merge(copies[..., 0].ravel(), copies[..., 1].ravel())
