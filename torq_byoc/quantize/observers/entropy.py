"""The range whose 8-bit form tells least apart from the tensor: smallest Kullback-Leibler divergence.

Migacz, "8-bit Inference with TensorRT" (GTC 2017), carried over to ranges with zero wherever it lies: for every
threshold T the range is what was seen of -T .. T.  P has the counts within, what is beyond added to the outermost
filled bins; Q has the counts within, those of each of the 255 steps spread evenly over the step's filled bins.  Values
of (nearly) zero are left out of both: every range represents zero as it is, however many zeros a Relu leaves.
"""

from __future__ import annotations

import numpy as np

from torq_byoc.quantize.observers.rounding_noise import STEPS
from torq_byoc.quantize.observers.statistics import Range, Statistics

CANDIDATES = 128
"""Thresholds tried between the narrowest, of one bin a step, and the largest magnitude."""


def entropy(seen: Statistics) -> Range:
    """The range of the least divergence; the widest of equally good."""
    values, counts = seen.points()
    if not values.size or seen.histogram is None:
        return seen.exact
    ranges = [_range_of(seen, threshold) for threshold in _thresholds(seen, seen.histogram.width).tolist()]
    found = [divergence(values, counts, each) for each in ranges]
    return ranges[len(found) - 1 - int(np.argmin(found[::-1]))]


def divergence(values: np.ndarray, counts: np.ndarray, chosen: Range) -> float:
    """KL divergence in nats of the 8-bit form of a distribution; infinite for a range without values.

    Args:
        values: ascending.
        counts: how often each.
        chosen: the range; zero belongs to it.
    """
    first = int(np.searchsorted(values, chosen.low, side="left"))
    last = int(np.searchsorted(values, chosen.high, side="right"))
    inside = counts[first:last].astype(np.float64)
    if not inside.size:
        return float("inf")
    step = chosen.width / STEPS
    steps = np.rint((values[first:last] - chosen.low) / step).astype(np.int64)
    q = (np.bincount(steps, inside) / np.maximum(np.bincount(steps), 1))[steps]
    p = inside
    p[0] += counts[:first].sum()
    p[-1] += counts[last:].sum()
    p, q = p / p.sum(), q / q.sum()
    return float(p @ np.log(p / q))


def _thresholds(seen: Statistics, width: float) -> np.ndarray:
    """Magnitudes to try, ascending: edges of bins, and the largest magnitude."""
    sides = 1 if seen.exact.low >= 0.0 or seen.exact.high <= 0.0 else 2
    largest = max(-seen.exact.low, seen.exact.high)
    bins = int(largest / width)
    narrowest = min(-(-STEPS // sides), bins)
    edges = np.unique(np.linspace(narrowest, bins, CANDIDATES).astype(np.int64)) * width
    return np.append(edges[(edges > 0) & (edges < largest)], largest)


def _range_of(seen: Statistics, threshold: float) -> Range:
    """What was seen of the values up to a magnitude, with zero."""
    low, high = min(seen.exact.low, 0.0), max(seen.exact.high, 0.0)
    return Range(max(low, -threshold), min(high, threshold))
