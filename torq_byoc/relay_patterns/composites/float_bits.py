"""bf16 and fp32 values seen as the integers that encode them.

The bit pattern of a positive float grows with its value, linearly inside each binade: adding 128 to a
bf16 pattern doubles the value.  Functions are computed on patterns where that is cheaper than on values.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

BINADE = 128
"""Patterns of bf16 in one binade."""
EXPONENT_BIAS = 127
INFINITY = 0x7F80
FP32_BINADE = 1 << 23


def bf16_pattern(values: np.ndarray) -> np.ndarray:
    """The real-valued (unrounded) int16 pattern of real values; rounding it rounds the value to bf16.

    Negative values give negative patterns (sign bit set); magnitudes past bf16 give infinity's pattern.
    """
    values = np.asarray(values, np.float64)
    magnitude = np.minimum(np.abs(values), 2.0**128)
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, -EXPONENT_BIAS)
    exponent = np.maximum(exponent, 1 - EXPONENT_BIAS)
    pattern = BINADE * (exponent + EXPONENT_BIAS - 1 + np.ldexp(magnitude, -exponent))
    return np.where(values < 0, pattern - (1 << 15), pattern)


def bf16_of_pattern(patterns: np.ndarray) -> np.ndarray:
    """bf16 values (as float64) of int16 patterns."""
    return np.asarray(patterns, np.int16).view(ml_dtypes.bfloat16).astype(np.float64)


def to_bf16(value: float) -> float:
    """The bf16 nearest to a real, as a float."""
    return float(np.float32(value).astype(ml_dtypes.bfloat16))


def split_bf16(value: float) -> tuple[float, float]:
    """A real as the sum of two bf16 numbers of the same sign (15 significant bits together).

    With one sign, x * first + x * second is infinite, not NaN, for infinite x.
    """
    below = math.floor(bf16_pattern(np.array(abs(value))))
    high = math.copysign(float(bf16_of_pattern(np.array(below))), value)
    return high, to_bf16(value - high)


def fp32_pattern(value: float) -> int:
    """The int32 that encodes an fp32 value."""
    return int(np.float32(value).view(np.int32))
