"""A range that one unusual sample moves little."""

from __future__ import annotations

from torq_byoc.quantize.observers.statistics import Range, Statistics


def moving_average(seen: Statistics) -> Range:
    """The moving average of every sample's smallest and largest value.

    The only method whose result depends on the order of the samples and on how they are batched.
    """
    return seen.average
