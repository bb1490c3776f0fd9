"""The range with the least mean squared error of 8 bits.

As OCTAV (Sakr et al., "Optimal Clipping and Magnitude-aware Differentiation", ICML 2022) weighs it: values beyond the
ends are cut, those within are rounded with variance s^2 / 12.  There the end is found by Newton's iteration for
symmetric ranges; here both ends are, each in turn by exact search over the edges of all bins.
"""

from __future__ import annotations

import numpy as np

from torq_byoc.quantize.observers.rounding_noise import STEPS
from torq_byoc.quantize.observers.statistics import Range, Statistics

_ROUNDS = 32
"""Searches of either end at most; three or four are usual, as the error falls with each."""


def mse(seen: Statistics) -> Range:
    """The range with the least expected error."""
    values, counts = seen.points()
    if not values.size or seen.histogram is None:
        return seen.exact
    positive = values > 0
    width = seen.histogram.width
    above = _Side(values[positive], counts[positive], max(seen.exact.high, 0.0), width)
    below = _Side(-values[~positive][::-1], counts[~positive][::-1], max(-seen.exact.low, 0.0), width)
    high, low = above.last, below.last
    for _ in range(_ROUNDS):
        before = (low, high)
        high = above.best(below, low)
        low = below.best(above, high)
        if (low, high) == before:
            break
    return Range(-float(below.ends[low]), float(above.ends[high]))


class _Side:
    """The values on one side of zero as magnitudes, and what ends of the range on that side do to them.

    Attributes:
        ends: magnitudes at which the range may end, ascending: 0, edges of bins, and the largest magnitude.
        cut: for each, sum of squares of what is cut off.
        within: for each, how many values are not cut.
    """

    def __init__(self, values: np.ndarray, counts: np.ndarray, largest: float, width: float) -> None:
        edges = np.arange(int(largest / width) + 1) * width
        self.ends = np.append(edges[edges < largest], largest)
        beyond = np.searchsorted(values, self.ends, side="right")
        tails = [_tail_sums(counts * values**power)[beyond] for power in range(3)]
        self.cut = np.maximum(tails[2] - 2 * self.ends * tails[1] + np.square(self.ends) * tails[0], 0.0)
        self.within = counts.sum() - tails[0]

    @property
    def last(self) -> int:
        """Index of the widest end."""
        return len(self.ends) - 1

    def best(self, other: _Side, end: int) -> int:
        """Where this side should end, the other one ending at ``end``; the widest of equally good."""
        steps = np.square((self.ends + other.ends[end]) / STEPS) / 12
        noise = self.cut + steps * (self.within + other.within[end])
        return len(noise) - 1 - int(np.argmin(noise[::-1]))


def _tail_sums(values: np.ndarray) -> np.ndarray:
    """For each position the sum from there on, and 0 at the end."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
