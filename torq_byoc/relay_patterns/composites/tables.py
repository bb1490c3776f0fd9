"""Look-up tables of ACT: exact ones for few codes, fitted piecewise-linear ones for many.

A table has 512 entries (base, slope), both int16.  A position v (int16, 9.7 fixed point) selects entry
i = (v >> 7) + 256 and gives base[i] + ((slope[i] * (v & 127) + 64) >> 7) (hardware doc 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.relay_patterns.composites.fixed_point import integer_rescale

SEGMENTS = 512
SEGMENT = 128
POSITIONS = SEGMENTS * SEGMENT
INT16_MIN, INT16_MAX = -(1 << 15), (1 << 15) - 1


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A table and the largest distance between its values and the targets, in units of the target."""

    table: np.ndarray
    max_error: float


def positions() -> np.ndarray:
    """All positions v, int64[512, 128], ascending: one row a segment."""
    return np.arange(INT16_MIN, INT16_MAX + 1).reshape(SEGMENTS, SEGMENT)


def table_values(table: np.ndarray) -> np.ndarray:
    """What the machine returns at every position: int64[512, 128]."""
    base, slope = table[:, :1].astype(np.int64), table[:, 1:].astype(np.int64)
    return base + ((slope * np.arange(SEGMENT) + SEGMENT // 2) >> 7)


def exact_table(values: np.ndarray) -> np.ndarray:
    """The table that returns ``values[n]`` (int16, at most 512 of them) for the n-th code.

    Entries past the last repeat it; use with ``exact_index``.
    """
    base = np.empty(SEGMENTS, np.int64)
    base[: len(values)] = values
    base[len(values) :] = values[-1]
    return _pack(base, np.zeros(SEGMENTS, np.int64))


def exact_index(lowest: int) -> Rescale:
    """Maps integer code c to the start of entry c - lowest, so no interpolation takes part."""
    return integer_rescale(SEGMENT, bias=-(lowest + SEGMENTS // 2))


def fit_table(targets: np.ndarray) -> FittedTable:
    """The piecewise-linear table closest to ``targets`` in the largest-error sense.

    ``targets`` are float64[512, n], one row a segment, n a power of two: every 128/n-th position has one, and no other
    position is looked up.  Targets outside int16 stand for saturated results; a piece may overshoot there.  For every
    segment the chords (of the targets as given, and saturated) and the least-squares slope are tried, each rounded both
    ways, with the base that balances the residuals; the machine's own arithmetic judges them.
    """
    steps = np.arange(0, SEGMENT, SEGMENT // targets.shape[1])
    span = max(int(steps[-1]), 1)
    saturated = np.clip(targets, INT16_MIN, INT16_MAX)
    limited = np.clip(targets, 2 * INT16_MIN, 2 * INT16_MAX)
    centred = steps - steps.mean()
    candidates = [
        (limited, (limited[:, -1] - limited[:, 0]) / span),
        (saturated, (saturated[:, -1] - saturated[:, 0]) / span),
        (saturated, saturated @ centred / max(centred @ centred, 1.0)),
    ]
    best_base = np.zeros(SEGMENTS, np.int64)
    best_slope = np.zeros(SEGMENTS, np.int64)
    best_error = np.full(SEGMENTS, np.inf)
    for wanted, gradient in candidates:
        for round_slope in (np.floor, np.ceil):
            slope = round_slope(gradient * SEGMENT).clip(INT16_MIN, INT16_MAX).astype(np.int64)
            ramp = (slope[:, None] * steps + SEGMENT // 2) >> 7
            rest = wanted - ramp
            base = np.rint((rest.max(axis=1) + rest.min(axis=1)) / 2).clip(INT16_MIN, INT16_MAX).astype(np.int64)
            values = np.clip(base[:, None] + ramp, INT16_MIN, INT16_MAX)
            error = np.abs(values - saturated).max(axis=1)
            better = error < best_error
            best_base[better], best_slope[better], best_error[better] = base[better], slope[better], error[better]
    return FittedTable(_pack(best_base, best_slope), float(best_error.max()))


def _pack(base: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return np.stack([base, slope], axis=1).astype(np.int16)
