"""The range of all values seen, with room for larger ones.

Among unseen data there will be values beyond all of the samples': with heavy tails, far beyond.  In 8 bits room costs
as many decibels as it gives on the rare occasion.  Where codes can be spared it is free: in 16 bits, and in tensors
that hold nothing but outliers.
"""

from __future__ import annotations

from torq_byoc.quantize.observers.statistics import Range, Statistics

ROOM = 2.0
"""Factor by which values may be larger than any seen: one bit.  Where magnitudes beyond x are as rare as 1 / x^2.5, as
many values again as were seen go beyond in one case of seven."""


def headroom(seen: Statistics) -> Range:
    """The smallest and the largest value, each ``ROOM`` times as far from zero."""
    return seen.exact.widened(ROOM)
