"""The range of all values seen."""

from __future__ import annotations

from torq_byoc.quantize.observers.statistics import Range, Statistics


def minmax(seen: Statistics) -> Range:
    """The smallest and the largest value."""
    return seen.exact
