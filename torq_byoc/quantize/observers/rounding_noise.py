"""What quantizing a tensor to a range costs: values beyond its ends are cut, those within are rounded.

Rounding to steps of s adds noise of variance s^2 / 12.  Zero is representable in every range and adds none.
"""

from __future__ import annotations

import numpy as np

from torq_byoc.quantize.evaluation.distance import MOST_SQNR
from torq_byoc.quantize.observers.statistics import Range, Statistics

STEPS = 255
"""Steps of an 8-bit range."""


def expected_sqnr(seen: Statistics, chosen: Range) -> float:
    """Decibels by which the tensor's squares exceed the noise of 8 bits over a range; 0 without a histogram."""
    values, counts = seen.points()
    signal = float(counts @ np.square(values))
    if signal == 0.0:
        return MOST_SQNR if seen.histogram is not None else 0.0
    low, high = min(chosen.low, 0.0), max(chosen.high, 0.0)
    cut = values - np.clip(values, low, high)
    within = float(counts[cut == 0.0].sum())
    noise = float(counts @ np.square(cut)) + within * ((high - low) / STEPS) ** 2 / 12
    return MOST_SQNR if noise == 0.0 else float(np.clip(10 * np.log10(signal / noise), -MOST_SQNR, MOST_SQNR))
