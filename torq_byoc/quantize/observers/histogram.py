"""Counts of a tensor's values in equal bins on either side of zero, in constant memory.

Bin 0 holds the values nearer to zero than one width; bin k those from k to k + 1 widths, bin -k their mirror images.
The span is the smallest power of two that holds every value, so that bins of a wider span are unions of those of a
narrower one, and no value falls elsewhere for having come earlier: the counts depend on the values alone, not on
their order nor on how they were cut into batches.
"""

from __future__ import annotations

import math

import numpy as np

BINS = 4096
"""Bins on each side of zero; at least half of them lie below the largest magnitude."""
LEAST_SPAN = 2.0**-60
"""A narrower span is of no use: no scale is that small."""
_CHUNK = 1 << 16
"""Values counted at once, so that what is worked with stays in the processor's cache."""


class Histogram:
    """Counts of finite values.

    Attributes:
        counts: int64 of 2 * ``BINS`` + 1 bins; bin k of the module's description is at ``BINS`` + k.
        span: magnitude that the outermost bins end at, a power of two; 0 while nothing but zeros was seen.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(2 * BINS + 1, np.int64)
        self.span = 0.0

    @property
    def width(self) -> float:
        """Extent of a bin."""
        return self.span / BINS

    def update(self, values: np.ndarray, largest: float) -> None:
        """Take in values.

        Args:
            values: finite floats of any shape.
            largest: their largest magnitude.
        """
        if not values.size:
            return
        if largest > self.span:
            self._widen(max(_power_of_two(largest), LEAST_SPAN))
        flat = values.reshape(-1)
        if self.span == 0.0:
            self.counts[BINS] += flat.size
            return
        factor = flat.dtype.type(BINS / self.span)
        for start in range(0, flat.size, _CHUNK):
            bins = (flat[start : start + _CHUNK] * factor).astype(np.intp)
            bins += BINS
            self.counts += np.bincount(bins, minlength=2 * BINS + 1)

    def _widen(self, span: float) -> None:
        """Merge bins into those of a larger span."""
        if self.span:
            ratio = round(math.log2(span / self.span))
            found = np.flatnonzero(self.counts)
            distance = np.abs(found - BINS) >> ratio
            merged = np.zeros_like(self.counts)
            np.add.at(merged, BINS + np.sign(found - BINS) * distance, self.counts[found])
            self.counts = merged
        self.span = span

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Centres of the bins that hold values other than (nearly) zero, ascending, and their counts."""
        found = np.flatnonzero(self.counts)
        found = found[found != BINS]
        offsets = found - BINS
        return (offsets + 0.5 * np.sign(offsets)) * self.width, self.counts[found]


def _power_of_two(value: float) -> float:
    """The smallest power of two that is at least ``value``."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)
