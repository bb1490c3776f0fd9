"""The LRAM map: tenancies as rectangles of time x address, few enough to draw, and the bytes in use above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.report.measure import Measurement
from torq_byoc.report.page.tenancies import Tenancy, tenancies

_MERGE_PARTS = 4096
_CURVE_POINTS = 2000


@dataclass(frozen=True)
class LramMap:
    """What is drawn of LRAM over time.

    Attributes:
        capacity: bytes of LRAM.
        gap: tenancies of one layer and kind in the same place are one rectangle when at most this many cycles lie
            between them; 0 when every buffer has its own.
        left_out: buffers without rectangle, those that cover least.
        left_out_share: part of all bytes x cycles that they cover.
        in_use: (cycle, bytes) at the changes of the bytes in use, as a staircase; the most bytes of every
            interval where there are too many changes to draw.
    """

    capacity: int
    rectangles: tuple[Tenancy, ...]
    gap: int
    left_out: int
    left_out_share: float
    in_use: tuple[tuple[int, int], ...]


def lram_map(measurement: Measurement, limit: int) -> LramMap:
    """The map of all partitions, with at most ``limit`` rectangles."""
    capacity = measurement.config.lram_bytes if measurement.config else 0
    everything = tenancies(measurement)
    gap = measurement.total_cycles // _MERGE_PARTS if len(everything) > limit else 0
    rectangles = _joined(everything, gap) if gap else everything
    kept = sorted(rectangles, key=_area, reverse=True)[:limit]
    dropped = sum(r.buffers for r in rectangles) - sum(r.buffers for r in kept)
    area = sum(map(_area, rectangles))
    return LramMap(
        capacity,
        tuple(sorted(kept, key=lambda r: (r.start, r.address))),
        gap,
        dropped,
        1 - sum(map(_area, kept)) / area if dropped else 0.0,
        _in_use(measurement),
    )


def _area(tenancy: Tenancy) -> int:
    return tenancy.nbytes * (tenancy.end - tenancy.start)


def _joined(everything: Sequence[Tenancy], gap: int) -> list[Tenancy]:
    """Tenancies by start; those that follow one another in the same place joined."""
    open_ones: dict[tuple[int, str, int, int], int] = {}
    joined: list[Tenancy] = []
    for tenancy in everything:
        place = (tenancy.layer, tenancy.kind, tenancy.address, tenancy.nbytes)
        position = open_ones.get(place)
        if position is not None and tenancy.start - joined[position].end <= gap:
            last = joined[position]
            joined[position] = replace(last, end=max(last.end, tenancy.end), buffers=last.buffers + tenancy.buffers)
        else:
            open_ones[place] = len(joined)
            joined.append(tenancy)
    return joined


def _in_use(measurement: Measurement) -> tuple[tuple[int, int], ...]:
    points: list[tuple[int, int]] = []
    offset = 0
    for use, timeline in zip(measurement.lram, measurement.timelines, strict=True):
        points += [(offset + cycle, held) for cycle, held in use.occupancy]
        offset += timeline.total_cycles
    return tuple(points) if len(points) <= _CURVE_POINTS else _peaks(points, offset)


def _peaks(points: Sequence[tuple[int, int]], total: int) -> tuple[tuple[int, int], ...]:
    """The most bytes in each of ``_CURVE_POINTS`` equal intervals, those that are there at its begin among them."""
    cycles, held = np.array(points, np.int64).T
    step = -(-total // _CURVE_POINTS)
    begins = np.arange(0, total + 1, step)
    before = np.searchsorted(cycles, begins, side="right") - 1
    most = np.where(before >= 0, held[np.maximum(before, 0)], 0)
    np.maximum.at(most, cycles // step, held)
    return tuple(zip(begins.tolist(), most.tolist(), strict=True))
