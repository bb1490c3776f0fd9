"""x above zero and a multiple of it below, slopes a channel, as integer weights of the ALU.

    y = x for x >= 0, slope * x below   becomes   max(x * above, x * below),
                                        or        x * below + max(x, 0) * (above - below)

with above : below as 1 : slope.  Weights are small, so that ratio is the best of its kind rather than exact; a form is
taken only where no code of the 8-bit input comes out more than one code beside the correctly rounded one, and the mean
square error over all of them is that of the rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.rescaling import rescaled
from torq_byoc.relay_patterns.arithmetic import requantization
from torq_byoc.relay_patterns.composites.code_error import is_close
from torq_byoc.relay_patterns.quant_params import QuantParams

_ONE_WEIGHT, _TWO_WEIGHTS = 127, 254
"""Largest magnitude of an operand's weight, as one tap or as the sum of two."""


@dataclass(frozen=True, eq=False)
class TwoSlopes:
    """Weights int8[rows, n] of a ``weighted_max`` or ``weighted_sum`` node, and its rescale."""

    weights: np.ndarray
    rescale: Rescale


def as_maximum(slopes: np.ndarray, axis: int, source: QuantParams, out: QuantParams) -> TwoSlopes | None:
    """The larger of two multiples of x, whose zero point must be 0; None where weights are too coarse.

    Args:
        slopes: below zero, float64[n].
        axis: output axis of the slopes.
        source, out: quantization of x, of one byte, and of the result.
    """
    found = _ratio(slopes, _ONE_WEIGHT, _ONE_WEIGHT * 2)
    if found is None:
        return None
    above, below = found * np.where(slopes > 1, -1, 1)  # turned over, the lower piece is the larger
    return _checked(slopes, axis, source, out, (above, below), np.stack([above, below]))


def as_sum(slopes: np.ndarray, axis: int, source: QuantParams, out: QuantParams) -> TwoSlopes | None:
    """The weighted sum of x and max(x, zero); arguments as ``as_maximum``, any zero point."""
    found = _ratio(slopes, _TWO_WEIGHTS, _TWO_WEIGHTS)
    if found is None:
        return None
    above, below = found
    halves = [half for weight in (below, above - below) for half in (weight // 2, weight - weight // 2)]
    return _checked(slopes, axis, source, out, (above, below), np.stack(halves))


def _ratio(slopes: np.ndarray, most: int, apart: int) -> np.ndarray | None:
    """Weights [above, below] of at most ``most``, at most ``apart`` from one another, above > 0, whose quotients are
    nearest to the slopes; None when a slope has none."""
    above = np.arange(1, most + 1)[:, None]
    below = np.rint(above * slopes)
    possible = (np.abs(below) <= most) & (np.abs(above - below) <= apart)
    error = np.where(possible, np.abs(below / above - slopes), np.inf)
    best = error.argmin(axis=0)
    if np.isinf(error.min(axis=0)).any():
        return None
    return np.stack([above[best, 0], below[best, np.arange(slopes.size)].astype(np.int64)])


def _checked(
    slopes: np.ndarray,
    axis: int,
    source: QuantParams,
    out: QuantParams,
    pieces: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
) -> TwoSlopes | None:
    above, below = pieces
    gain = source.scale / out.scale
    rescale = requantization(gain / above, -above * source.zero_point, out, axis=axis)
    low, high = source.dtype.integer_range
    x = np.arange(low, high + 1) - source.zero_point
    sums = np.where(x >= 0, above[:, None] * x, below[:, None] * x)
    codes = rescaled(sums, replace(rescale, bias=np.zeros_like(rescale.bias), axis=0), out.dtype, source.dtype)
    real = np.where(x >= 0, x, slopes[:, None] * x) * gain
    rounded, exact = (np.clip(values + out.zero_point, *out.dtype.integer_range) for values in (np.rint(real), real))
    return TwoSlopes(weights.astype(np.int8), rescale) if is_close(codes, rounded, exact) else None
