"""What calibration keeps of a tensor's values, and the methods that make a range of it.

A method is a file with one function and its line in ``CALIBRATORS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torq_byoc.quantize.observers.entropy import entropy
from torq_byoc.quantize.observers.headroom import headroom
from torq_byoc.quantize.observers.minmax import minmax
from torq_byoc.quantize.observers.moving_average import moving_average
from torq_byoc.quantize.observers.mse import mse
from torq_byoc.quantize.observers.percentile import percentile
from torq_byoc.quantize.observers.statistics import Range, Statistics

CALIBRATORS: Mapping[str, Callable[[Statistics], Range]] = MappingProxyType(
    {
        "minmax": minmax,
        "percentile": percentile,
        "entropy": entropy,
        "mse": mse,
        "moving-average": moving_average,
        "headroom": headroom,
    }
)
"""Ways to a range, by the name that users give."""

__all__ = ["CALIBRATORS", "Range", "Statistics"]
