"""Results whose bounds are known: they take the part of their bounds that calibration reached, with room to spare.

``y = Sigmoid(x)`` seen up to 0.03 takes the range 0 .. 2^-5; seen up to 0.9, 0 .. 1.

A power of two of room keeps what was not calibrated on from being cut off at once; scores that are never near 1 still
get more than a few of the 256 codes.  1, which many results reach exactly, has a code of its own.
"""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.quantize.observers import Range
from torq_byoc.quantize.parameters import SMALLEST_SCALE, TensorQuantization

ODD = frozenset({"Tanh"})
"""Operators of ``rules.BOUNDED`` with results of either sign, around the zero point 0; those of others are positive."""


def bounded_result(operator: str, observed: Range) -> TensorQuantization:
    """int8 parameters of a result of one of ``rules.BOUNDED``."""
    largest = max(-observed.low, observed.high)
    bound = 2.0 ** min(math.ceil(math.log2(largest)), 0) if largest > SMALLEST_SCALE * 255 else SMALLEST_SCALE * 255
    if operator in ODD:
        return TensorQuantization(np.float32(bound / 127), 0, "int8")
    return TensorQuantization(np.float32(bound / 255), -128, "int8")
