"""In which order the candidates of a node are priced: by bounds that rise with what is found out about the slices.

A bound takes every tile to use the slices as well as the whole output does.  Hundreds of tilings that differ in nothing
but how well they do have the same bound then, and only some are priced.  What one of them turns out to need is expected
of those like it: the slices take as long for an element wherever their parts of a tile have the same plane (the
innermost two axes), and much the same where they have rows of the same length.

Before: a convolution of 56 columns, whose first 16 candidates all have tiles of 12 or 6 columns, for which the slices
take 1.3 to 2.3 times as long as for whole rows.  After: the first one with 12 columns shows that, and the next
candidate is one with another number of columns, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_WAYS = 2
"""Axes along which dividing a tile is considered, the most even ones."""
_ROW, _PLANE = 1, 2
"""What is known of parts like one: what others with such rows need, or with such a plane."""


class Parts(NamedTuple):
    """The largest parts of n tiles when each is divided between the slices in up to ``_WAYS`` ways; arrays of n rows.

    Attributes:
        axes: along which; -1 for not at all.
        shares: of the tile, 0..1; infinite where there is no such way.
        rows, planes: extents of the innermost axis, and numbers of those of the innermost two.
    """

    axes: np.ndarray
    shares: np.ndarray
    rows: np.ndarray
    planes: np.ndarray

    def of(self, which: np.ndarray) -> Parts:
        """Those of some tiles."""
        return Parts(*(column[which] for column in self))


def parts_of(
    tiles: np.ndarray, steps: Sequence[int], slices: int, given: tuple[int | None, ...] | None = None
) -> Parts:
    """How tiles are divided between the slices.

    Args:
        tiles: extents, one row a tile.
        steps: unit in which each axis may be divided; 0 never.
        slices: among which.
        given: the only ways to divide a tile; None for the most even ones.
    """
    count, rank = tiles.shape
    parts = np.repeat(tiles[:, None, :], rank + 1, axis=1)
    for axis, step in enumerate(steps):
        if step:
            parts[:, axis, axis] = np.minimum(tiles[:, axis], step * -(-tiles[:, axis] // (step * slices)))
    shares = parts.prod(axis=2) / np.maximum(1, tiles.prod(axis=1))[:, None]
    divided = shares[:, :rank] < 1
    shares[:, :rank][~divided] = np.inf
    shares[:, rank][divided.any(axis=1)] = np.inf
    if given is not None:
        allowed = [rank if axis is None else axis for axis in given]
        shares[:, rank] = 1.0
        shares[:, [axis for axis in range(rank + 1) if axis not in allowed]] = np.inf
        shares[np.isinf(shares).all(axis=1), rank] = 1.0  # none of them divides it: one slice does it all
    best = np.argsort(shares, axis=1, kind="stable")[:, :_WAYS]
    at = (np.arange(count)[:, None], best)
    rows = parts[..., -1][at] if rank else np.ones(best.shape, dtype=np.int64)
    planes = rows + (1 << 31) * parts[..., -2][at] if rank > 1 else rows
    return Parts(np.where(best == rank, -1, best), shares[at], rows, planes)


class PricingOrder:
    """Expected ranks of n candidates, which rise from their bounds.

    Args:
        bound: rank if the slices are used as well as by the whole output, on evenly divided tiles.
        work: cycles of all tiles on one slice in that.
        slack: cycles by which the slices may take longer before the rank rises.
        tile: number of the candidate's tile: the same one for other loop orders and buffering depths.
        parts: of the tile.

    Attributes:
        expected: rank if the slices need as much as for candidates like it.
        least: the same, where only what is known of parts with the same plane counts.
    """

    def __init__(self, bound: np.ndarray, work: float, slack: np.ndarray, tile: np.ndarray, parts: Parts) -> None:
        self.expected, self.least = bound.copy(), bound.copy()
        self._bound, self._work, self._slack, self._tile, self._parts = bound, work, slack, tile, parts
        self._even = parts.shares.min(axis=1)
        self._factors = np.ones(parts.shares.shape)
        self._known = np.zeros(parts.shares.shape, dtype=np.int64)
        self._priced = np.zeros(len(bound), dtype=bool)
        self._lowest: dict[tuple[int, int], float] = {}

    def learn(self, index: int, work: dict[int | None, float], full: dict[int | None, float]) -> None:
        """Expect of candidates like this one what it needs.

        Args:
            index: the candidate.
            work: busy cycles of its slices, by the axis along which its tiles are divided.
            full: the same if every tile were a full one; tiles with such rows may leave other remainders.
        """
        for way, axis in enumerate(self._parts.axes[index].tolist()):
            share, divided = float(self._parts.shares[index, way]), None if axis < 0 else axis
            if divided in work and share < np.inf:
                even = self._work * share
                self._generalise(_ROW, self._parts.rows, int(self._parts.rows[index, way]), full[divided] / even)
                self._generalise(_PLANE, self._parts.planes, int(self._parts.planes[index, way]), work[divided] / even)
        same = np.flatnonzero(self._tile == self._tile[index])
        self._priced[same] = True
        self.expected[same] = self.least[same] = self._rank(same, min(work.values()) / self._work)

    def _generalise(self, likeness: int, kinds: np.ndarray, kind: int, factor: float) -> None:
        """The least that any part of a kind needed is expected of all others of which nothing better is known."""
        if factor >= self._lowest.get((likeness, kind), np.inf):
            return
        self._lowest[likeness, kind] = factor
        alike = (kinds == kind) & (self._known <= likeness)
        self._factors[alike], self._known[alike] = factor, likeness
        which = np.flatnonzero(alike.any(axis=1) & ~self._priced)
        shares, factors = self._parts.shares[which], self._factors[which]
        self.expected[which] = self._rank(which, (shares * factors).min(axis=1))
        if likeness == _PLANE:
            sure = np.where(self._known[which] == _PLANE, factors, 1.0)
            self.least[which] = self._rank(which, (shares * sure).min(axis=1))

    def _rank(self, which: np.ndarray, share: np.ndarray | float) -> np.ndarray:
        """Ranks of some candidates when the slowest slice has this share of the work."""
        more = (share - self._even[which]) * self._work - self._slack[which]
        return self._bound[which] + np.maximum(0.0, more)
