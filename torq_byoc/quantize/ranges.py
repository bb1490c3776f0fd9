"""Streaming observers of tensor ranges: exact minimum and maximum, and a percentile from a histogram."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

BINS = 2048


@dataclass(frozen=True)
class Range:
    """The values that a quantized type must span."""

    low: float
    high: float


class Observer(Protocol):
    """Sees every value of one tensor, sample by sample."""

    def update(self, values: np.ndarray) -> None:
        """Take in one sample's values."""

    def range(self) -> Range:
        """The range to quantize for."""


class MinMax:
    """The smallest and the largest value seen."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")

    def update(self, values: np.ndarray) -> None:
        """Take in one sample's values."""
        if values.size:
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))

    def range(self) -> Range:
        """What was seen; [0, 0] when nothing was."""
        return Range(self.low, self.high) if self.low <= self.high else Range(0.0, 0.0)


class Percentile:
    """The range that leaves out ``tail`` of the values on either side.

    Values are counted in a histogram of ``BINS`` bins; when a value falls outside, the histogram's span
    doubles around its centre and neighbouring bins merge, so memory is constant and every value counts.
    """

    def __init__(self, tail: float = 1e-4) -> None:
        self.tail = tail
        self.exact = MinMax()
        self.centre, self.half = 0.0, 0.0
        self.counts = np.zeros(BINS, np.int64)

    def update(self, values: np.ndarray) -> None:
        """Take in one sample's values."""
        if not values.size:
            return
        self.exact.update(values)
        if self.half == 0.0:
            self.half = max(float(np.abs(values).max()), 1e-30)
        while max(abs(self.exact.low - self.centre), abs(self.exact.high - self.centre)) > self.half:
            self._widen()
        position = (values.reshape(-1).astype(np.float64) - self.centre + self.half) / (2 * self.half) * BINS
        self.counts += np.bincount(np.clip(position, 0, BINS - 1).astype(np.int64), minlength=BINS)

    def _widen(self) -> None:
        merged = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts = np.zeros(BINS, np.int64)
        self.counts[BINS // 4 : BINS // 4 + BINS // 2] = merged
        self.half *= 2

    def range(self) -> Range:
        """Bounds of the bins between which all but the tails lie, within what was seen."""
        total = int(self.counts.sum())
        if not total:
            return self.exact.range()
        cumulative = np.cumsum(self.counts)
        drop = int(self.tail * total)
        first = int(np.searchsorted(cumulative, drop, side="right"))
        last = int(np.searchsorted(cumulative, total - drop, side="left"))
        width = 2 * self.half / BINS
        low = self.centre - self.half + first * width
        high = self.centre - self.half + (last + 1) * width
        return Range(max(low, self.exact.low), min(high, self.exact.high))


OBSERVERS: dict[str, Callable[[], Observer]] = {"minmax": MinMax, "percentile": Percentile}
"""Calibrators by name; a new one is a class and a line here."""
