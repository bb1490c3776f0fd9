"""Beam search over skylines: allocations grown from the bottom, many at a time.

A partial allocation is seen from above: every section (a slot that matters) has a floor, and bytes that are still to
be placed over it.  What lies between the floor and the capacity beyond those bytes is its slack; a section without
slack must be filled without a gap.  One step of the search takes in every partial allocation the section that is
lowest, counting slack for some height, and asks which buffer rests on its floor.  Floors then rise to where
the lowest remaining buffer can lie, so gaps count as soon as they are certain, and what has negative slack is dropped.
The most promising survivors go on.

That allocations in which every buffer rests on another suffice, that floors alone say how they go on, and that
raised floors refute early, is due to Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
Machine Learning" (ASPLOS 2023), who searches exhaustively.  All arithmetic that ranks is on integers or single IEEE
operations, so the answer does not depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.codegen.allocation.sections import NEVER, Sections

_UNIT = 1 << 12
"""Fixed-point one of the terms of a score."""


@dataclass(frozen=True)
class Guide:
    """How a search ranks partial allocations.

    Attributes:
        width: partial allocations kept in every step.
        tightness: height that a byte of slack is worth when the lowest section is chosen.
        roughness: weight of the gaps that remaining buffers would leave if they were placed now.
        nearness: weight of slack that is nearly spent.
        ease: share of the slack that no section misses.
        square: progress counts in full, not by its root.
        children: partial allocations worked out in a step for each that is kept.
    """

    width: int
    tightness: float = 0.6
    roughness: float = 0.0
    nearness: float = 0.0
    ease: float = 0.02
    square: bool = False
    children: int = 3


@dataclass(frozen=True, eq=False)
class Outcome:
    """Offsets, or None where the search died out; the work that it took, in array elements."""

    offsets: tuple[int, ...] | None
    work: int


@dataclass(frozen=True, eq=False)
class _Beam:
    """Partial allocations, one a row.

    Attributes:
        floor: offset from which on a section is free, int32[rows, sections].
        left: bytes to be placed over a section, int32[rows, sections].
        rest: offset at which a buffer would rest; NEVER once it is placed, int32[rows, n].
        offsets: of placed buffers, int32[rows, n].
        slack: bytes of a section that may stay empty, int32[rows, sections]; NEVER where nothing is left.
        score: less is better, float64[rows].
    """

    floor: np.ndarray
    left: np.ndarray
    rest: np.ndarray
    offsets: np.ndarray
    slack: np.ndarray
    score: np.ndarray

    def rows(self, chosen: np.ndarray) -> _Beam:
        return _Beam(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


class SkylineSearch:
    """One search for an allocation below a capacity.

    Args:
        sections: what is to be placed.
        capacity: bytes, less than 2**29.
        guide: how partial allocations are ranked.
    """

    def __init__(self, sections: Sections, capacity: int, guide: Guide) -> None:
        self.sections, self.capacity, self.guide = sections, capacity, guide
        ease = max(1, int(guide.ease * capacity))
        self._ease = ease
        self._spare = (capacity - sections.demand).astype(np.int64)
        self._price = _UNIT * _UNIT // (np.maximum(self._spare, 0) + ease)
        self._bulk = sections.size * sections.span
        self._weight = sections.size.astype(np.int64) * _UNIT // capacity
        generator = np.random.Generator(np.random.PCG64(0))
        self._hash = generator.integers(1, 1 << 31, sections.count), generator.integers(1, 1 << 31, len(sections.size))

    def run(self, most: int) -> Outcome:
        """Search until everything is placed, nothing survives, or ``most`` work is done."""
        if self._spare.min() < 0:
            return Outcome(None, 0)
        beam, work = self._start(), 0
        for _ in range(len(self.sections.size)):
            rows, buffers = self._moves(beam)
            work += len(rows) * (self.sections.count + 2 * len(self.sections.size))
            if not len(rows) or work > most:
                return Outcome(None, work)
            grown = self._grown(beam, rows, buffers)
            if grown is None:
                return Outcome(None, work)
            beam = self._survivors(grown)
        return Outcome(tuple(beam.offsets[0].tolist()), work)

    def _start(self) -> _Beam:
        count = len(self.sections.size)
        nothing = np.zeros((1, count), np.int32)
        floor = np.zeros((1, self.sections.count), np.int32)
        slack = self._spare[None].astype(np.int32)
        return _Beam(floor, self.sections.demand[None], nothing, nothing, slack, np.zeros(1))

    def _moves(self, beam: _Beam) -> tuple[np.ndarray, np.ndarray]:
        """(row, buffer) pairs worth a try.

        In the row's lowest section, every buffer that no other one of the section fits under.
        """
        lowest = np.where(beam.left > 0, beam.floor + self.guide.tightness * beam.slack, np.inf).argmin(1)
        candidates = self.sections.alive[lowest] & (beam.rest < NEVER)
        ceiling = np.where(candidates, beam.rest + self.sections.size, NEVER).min(1, keepdims=True)
        room = self.capacity - self.sections.highest(beam.left)
        rows, buffers = np.nonzero(candidates & (beam.rest < ceiling) & (beam.rest <= room))
        return self._cheapest(beam, rows, buffers)

    def _cheapest(self, beam: _Beam, rows: np.ndarray, buffers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As many moves as are worked out: those of the best rows, which leave the smallest gaps."""
        most = self.guide.children * self.guide.width
        if len(rows) <= most:
            return rows, buffers
        first, last = self.sections.first[buffers], self.sections.last[buffers]
        below = np.zeros((len(beam.floor), self.sections.count + 1), np.int64)
        np.cumsum(beam.floor, axis=1, out=below[:, 1:])
        gaps = beam.rest[rows, buffers].astype(np.int64) * (last - first) - (below[rows, last] - below[rows, first])
        chosen = np.lexsort((gaps, beam.score[rows]))[:most]
        return rows[chosen], buffers[chosen]

    def _grown(self, beam: _Beam, rows: np.ndarray, buffers: np.ndarray) -> _Beam | None:
        """The partial allocations after the moves, without those that cannot be completed."""
        each = np.arange(len(rows))
        covered = self.sections.alive.T[buffers]
        size, offset = self.sections.size[buffers][:, None], beam.rest[rows, buffers][:, None]
        floor = np.where(covered, offset + size, beam.floor[rows])
        left = beam.left[rows] - np.where(covered, size, 0)
        placed = beam.rest[rows] == NEVER
        placed[each, buffers] = True
        offsets = beam.offsets[rows]
        offsets[each, buffers] = offset[:, 0]
        rest = np.where(placed, NEVER, self.sections.highest(floor))
        floor = np.where(left > 0, self.sections.lowest(rest), 0)
        slack = np.where(left > 0, self.capacity - floor - left, NEVER)
        alive = np.flatnonzero(slack.min(1) >= 0)
        if not len(alive):
            return None
        grown = _Beam(floor, left, rest, offsets, slack, np.zeros(len(rows))).rows(alive)
        grown.score[:] = self._scores(grown)
        return grown

    def _scores(self, beam: _Beam) -> np.ndarray:
        """Slack spent, weighed by how little there was, for what has been placed."""
        open_ = beam.left > 0
        spent = np.where(open_, (self._spare - beam.slack) * self._price, 0).sum(1) // _UNIT
        if self.guide.nearness:
            near = np.where(open_, self._ease * _UNIT // (np.maximum(beam.slack, 0).astype(np.int64) + self._ease), 0)
            spent += (near.sum(1) * self.guide.nearness).astype(np.int64)
        if self.guide.roughness:
            spent += (self._roughness(beam) * self.guide.roughness).astype(np.int64)
        remaining = np.where(beam.rest < NEVER, self._bulk, 0).sum(1)
        total = int(self._bulk.sum())
        progress = (total - remaining) / total + 1e-3
        return (spent + _UNIT) / (progress if self.guide.square else np.sqrt(progress))

    def _roughness(self, beam: _Beam) -> np.ndarray:
        """Gaps under the remaining buffers, were they placed now, weighed by their sizes."""
        below = np.zeros((len(beam.floor), self.sections.count + 1), np.int64)
        np.cumsum(beam.floor, axis=1, out=below[:, 1:])
        gaps = beam.rest * self.sections.span - (below[:, self.sections.last] - below[:, self.sections.first])
        return np.where(beam.rest < NEVER, gaps * self._weight, 0).sum(1) // self.capacity

    def _survivors(self, beam: _Beam) -> _Beam:
        """The best rows; of equal skylines over the same remaining buffers only one."""
        left = (beam.rest < NEVER) @ self._hash[1]
        _, different = np.unique(beam.floor @ self._hash[0] + left, return_index=True)
        order = np.lexsort((different, beam.score[different]))[: self.guide.width]
        return beam.rows(different[order])
