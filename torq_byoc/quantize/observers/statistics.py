"""Everything that is kept of one tensor while samples stream by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.quantize.observers.histogram import Histogram

MOMENTUM = 0.9
"""Part of the moving average that a further sample leaves in place."""


@dataclass(frozen=True)
class Range:
    """The values that a quantized type must span."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """Distance of its ends."""
        return self.high - self.low

    def widened(self, factor: float) -> Range:
        """Its ends ``factor >= 1`` times as far from zero; never on the other side of it."""
        return Range(min(self.low, factor * self.low), max(self.high, factor * self.high))


class Statistics:
    """Extremes, their moving average and a histogram of one tensor, in constant memory.

    Attributes:
        exact: smallest and largest value seen; 0 .. 0 before the first.
        average: moving average of the extremes of each update, which is one sample (or batch).
        histogram: counts of all values; None where no method needs them.
    """

    def __init__(self, *, counts: bool = True) -> None:
        self.exact = Range(0.0, 0.0)
        self.average = Range(0.0, 0.0)
        self.histogram = Histogram() if counts else None
        self._empty = True
        self._points: tuple[np.ndarray, np.ndarray] | None = None

    def update(self, values: np.ndarray) -> None:
        """Take in one sample's values: finite floats of any shape."""
        if not values.size:
            return
        self._points = None
        own = Range(float(values.min()), float(values.max()))
        if self._empty:
            self.exact = self.average = own
        else:
            self.exact = Range(min(self.exact.low, own.low), max(self.exact.high, own.high))
            self.average = Range(_blend(self.average.low, own.low), _blend(self.average.high, own.high))
        self._empty = False
        if self.histogram is not None:
            self.histogram.update(values, max(abs(own.low), abs(own.high)))

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Values other than (nearly) zero that stand for those seen, ascending, and how often each.

        Empty without a histogram.
        """
        if self.histogram is None:
            return np.zeros(0), np.zeros(0, np.int64)
        if self._points is None:
            centres, counts = self.histogram.points()
            self._points = np.clip(centres, self.exact.low, self.exact.high), counts
        return self._points


def _blend(before: float, now: float) -> float:
    return MOMENTUM * before + (1 - MOMENTUM) * now
