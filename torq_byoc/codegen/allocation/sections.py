"""Lifetimes cut to the slots that matter, and questions over ranges of them for many skylines at once.

Two neighbouring slots differ in what starts and what ends between them.  Only those in which no buffer could be added
(every other slot's set of live buffers is part of theirs) restrict an allocation; they are called sections.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torq_byoc.codegen.allocation.request import Request

NEVER = 1 << 30
"""An offset above every capacity."""


class Sections:
    """Buffers over sections.

    Args:
        requests: at least one; sizes of 1 up.

    Attributes:
        size: bytes of every buffer, int32[n].
        first, last: first section of every buffer, and one behind its last, int64[n].
        count: number of sections.
        demand: bytes alive in every section, int32[sections].
        alive: which buffers live in a section, bool[sections, n].
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self.size = np.array([request.size for request in requests], np.int32)
        self.first, self.last = _sections_of(requests)
        self.count = int(self.last.max())
        slots = np.arange(self.count)[:, None]
        self.alive = (self.first <= slots) & (slots < self.last)
        self.demand = (self.alive @ self.size.astype(np.int64)).astype(np.int32)
        self.span = (self.last - self.first).astype(np.int64)
        level = np.array([int(span).bit_length() - 1 for span in self.span])
        self._levels = int(level.max()) + 1
        self._left = level * self.count + self.first
        self._right = level * self.count + self.last - (1 << level)
        cells = np.concatenate([self._left, self._right])
        order = np.argsort(cells, kind="stable")
        self._grouped = order % len(requests)
        heads = np.flatnonzero(np.diff(cells[order], prepend=-1))
        self._heads, self._cells = heads, cells[order][heads]

    def highest(self, values: np.ndarray) -> np.ndarray:
        """For every row and buffer the largest value over its sections: int32[rows, sections] -> [rows, n].

        A table of maxima over 1, 2, 4, ... sections; two entries of it cover any range.
        """
        table = np.empty((len(values), self._levels, self.count), values.dtype)
        table[:, 0] = values
        for level in range(1, self._levels):
            reach = 1 << (level - 1)
            below, here = table[:, level - 1], table[:, level]
            here[:] = below
            np.maximum(below[:, :-reach], below[:, reach:], out=here[:, :-reach])
        flat = table.reshape(len(values), -1)
        return np.maximum(flat[:, self._left], flat[:, self._right])

    def lowest(self, values: np.ndarray) -> np.ndarray:
        """For every row and section the smallest value of a buffer alive in it: int32[rows, n] -> [rows, sections].

        The table of ``highest`` the other way round: values enter where their buffer would be looked up, and
        sink to the sections.
        """
        table = np.full((len(values), self._levels * self.count), NEVER, values.dtype)
        table[:, self._cells] = np.minimum.reduceat(values[:, self._grouped], self._heads, axis=1)
        table = table.reshape(len(values), self._levels, self.count)
        for level in range(self._levels - 1, 0, -1):
            reach = 1 << (level - 1)
            here, below = table[:, level], table[:, level - 1]
            np.minimum(below, here, out=below)
            np.minimum(below[:, reach:], here[:, :-reach], out=below[:, reach:])
        return table[:, 0]


def _sections_of(requests: Sequence[Request]) -> tuple[np.ndarray, np.ndarray]:
    """First section and one behind the last of every request."""
    start = np.array([request.start for request in requests], np.int64)
    end = np.array([request.end + 1 for request in requests], np.int64)
    times = np.unique(np.concatenate([start, end]))
    opens, closes = np.isin(times, start), np.isin(times, end)
    kept, grown = [], False
    for index in range(len(times) - 1):
        grown |= bool(opens[index])
        if closes[index + 1] and grown:
            kept.append(times[index])
            grown = False
    return np.searchsorted(kept, start, "left"), np.searchsorted(kept, end, "left")
