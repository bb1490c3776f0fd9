"""First fit: one buffer after the other into the lowest gap among those whose lifetimes overlap, in several orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from torq_byoc.codegen.allocation.request import Allocation, Request

_Key = Callable[[Request], tuple[int, ...]]

_ORDERS: tuple[_Key, ...] = (
    lambda r: (-(r.end - r.start), -r.size),
    lambda r: (-r.size, r.start),
    lambda r: (-r.size * (r.end - r.start + 1), r.start),
    lambda r: (r.start, -r.size),
)


def first_fits(requests: Sequence[Request], capacity: int) -> Iterator[Allocation]:
    """The allocations of all orders in which everything fits below ``capacity``."""
    for key in _ORDERS:
        allocation = _place(requests, capacity, key)
        if allocation is not None:
            yield allocation


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
