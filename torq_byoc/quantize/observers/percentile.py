"""The range that leaves out a given part of the values on either side."""

from __future__ import annotations

import numpy as np

from torq_byoc.quantize.observers.histogram import BINS
from torq_byoc.quantize.observers.statistics import Range, Statistics

TAIL = 1e-4
"""Part of the values below the range, and above it."""


def percentile(seen: Statistics, tail: float = TAIL) -> Range:
    """Between the quantiles ``tail`` and 1 - ``tail``, each at the far edge of its bin, within what was seen."""
    histogram = seen.histogram
    if histogram is None or not histogram.counts.any():
        return seen.exact
    below = np.cumsum(histogram.counts)
    left_out = int(tail * below[-1])
    first = int(np.searchsorted(below, left_out, side="right")) - BINS
    last = int(np.searchsorted(below, below[-1] - left_out, side="left")) - BINS
    low = (first - 1 if first <= 0 else first) * histogram.width
    high = (last + 1 if last >= 0 else last) * histogram.width
    return Range(max(low, seen.exact.low), min(high, seen.exact.high))
