"""Offsets for buffers with known lifetimes: offline dynamic storage allocation.

Several orders of placement are tried, each putting a buffer into the lowest gap among those whose lifetimes
overlap; the first order in which everything fits wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Request:
    """A buffer to place: bytes, first and last slot (included) in which it is occupied."""

    size: int
    start: int
    end: int


@dataclass(frozen=True)
class Allocation:
    """Offsets in request order, and the height they reach."""

    offsets: tuple[int, ...]
    height: int


def max_live(requests: Sequence[Request]) -> int:
    """The largest sum of sizes alive in one slot: no allocation can be lower."""
    if not requests:
        return 0
    slots = max(request.end for request in requests) + 2
    delta = np.zeros(slots, np.int64)
    for request in requests:
        delta[request.start] += request.size
        delta[request.end + 1] -= request.size
    return int(np.cumsum(delta).max())


def allocate(requests: Sequence[Request], capacity: int, align: int) -> Allocation | None:
    """Place every request below ``capacity``.

    Args:
        requests: sizes and lifetimes.
        capacity: bytes available.
        align: offsets are multiples of this.

    Returns:
        The first allocation that fits, or None.
    """
    sizes = [-(-request.size // align) * align for request in requests]
    rounded = [Request(n, r.start, r.end) for n, r in zip(sizes, requests, strict=True)]
    if max_live(rounded) > capacity:
        return None
    top = capacity // align * align
    for key in _ORDERS:
        allocation = _place(rounded, top, key)
        if allocation is not None:
            return allocation
    return None


_Key = Callable[[Request], tuple[int, ...]]

_ORDERS: tuple[_Key, ...] = (
    lambda r: (-(r.end - r.start), -r.size),
    lambda r: (-r.size, r.start),
    lambda r: (-r.size * (r.end - r.start + 1), r.start),
    lambda r: (r.start, -r.size),
)


def _place(requests: Sequence[Request], capacity: int, key: _Key) -> Allocation | None:
    order = sorted(range(len(requests)), key=lambda index: (key(requests[index]), index))
    low = np.zeros(len(order), np.int64)
    high = np.zeros(len(order), np.int64)
    start = np.zeros(len(order), np.int64)
    end = np.zeros(len(order), np.int64)
    offsets = [0] * len(requests)
    height = 0
    for placed, index in enumerate(order):
        request = requests[index]
        beside = (start[:placed] <= request.end) & (end[:placed] >= request.start)
        neighbours = sorted(zip(low[:placed][beside].tolist(), high[:placed][beside].tolist(), strict=True))
        offset = _gap(neighbours, request.size, capacity)
        if offset is None:
            return None
        offsets[index] = offset
        low[placed], high[placed] = offset, offset + request.size
        start[placed], end[placed] = request.start, request.end
        height = max(height, offset + request.size)
    return Allocation(tuple(offsets), height)


def _gap(neighbours: list[tuple[int, int]], size: int, capacity: int) -> int | None:
    """Lowest offset of a gap of ``size`` between occupied intervals sorted by offset."""
    cursor = 0
    for occupied_low, occupied_high in (*neighbours, (capacity, capacity)):
        if occupied_low - cursor >= size:
            return cursor
        cursor = max(cursor, occupied_high)
    return None
