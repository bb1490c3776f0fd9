"""Straight lines through codes: ACT passes that give every input code its result, or keep it within bounds.

An ACT pass gives round(slope * t + offset), clipped to [lowest, highest], for the code t of its input.  Whether some
line passes between a lower and an upper bound at every code is linear feasibility in two dimensions; the line in the
middle of the widest gap is the one that rounding to the machine's integers disturbs least.  The caller tries the pass
on every code all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.npu_model.numerics import fixed_point, rescale

_STEPS = 48
_BIASES = 4096
_FARTHEST_BIAS = 1 << 30
_ZERO_POINTS = 1 << 15
_SLOPES = np.linspace(-0.5, 0.5, 9)
"""Slopes to try about that of the widest gap: in units of what would use up the gap at the outermost codes."""
_ROUNDED = 1e-9
"""A gap of nothing, as it comes out of floating-point arithmetic: the line hits ties, which may well go its way."""
_FAR = 1e9
"""Stands for a bound that is not there: farther than any line between codes goes."""


@dataclass(frozen=True, eq=False)
class Bands:
    """For each of n problems the bounds of an integer at every code: float64[n, codes], infinite where there is none.

    Results below ``lowest`` or above ``highest`` (float64[n]) are clipped to them: a bound beyond does not bind.
    """

    codes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, low: np.ndarray, high: np.ndarray) -> Bands:
        """Bands with the clip that leaves a line the most room: the least upper bound, the greatest lower one."""
        return cls(codes, low, high, high.min(axis=-1), np.maximum(low.max(axis=-1), high.min(axis=-1)))

    def take(self, chosen: np.ndarray) -> Bands:
        """Some of the problems."""
        return Bands(self.codes, self.low[chosen], self.high[chosen], self.lowest[chosen], self.highest[chosen])

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Between what a line must stay before it is rounded and clipped."""
        below = np.where(self.low <= self.lowest[:, None], -_FAR, self.low - 0.5)
        above = np.where(self.high >= self.highest[:, None], _FAR, self.high + 0.5)
        return np.maximum(below, -_FAR), np.minimum(above, _FAR)


@dataclass(frozen=True, eq=False)
class Lines:
    """A line a problem: float64[n] each.  ``gap`` is the room that it has, negative where it misses its band."""

    slope: np.ndarray
    offset: np.ndarray
    gap: np.ndarray


def lines_of_slope(bands: Bands, slope: np.ndarray) -> Lines:
    """The line of a given slope in the middle of each band."""
    below, above = bands.edges()
    ramp = slope[:, None] * bands.codes
    low, high = (below - ramp).max(axis=1), (above - ramp).min(axis=1)
    return Lines(slope, (low + high) / 2, high - low)


def widest_lines(bands: Bands) -> Lines:
    """For each problem the line with the widest gap.

    The gap is concave in the slope, and the codes that bound it give its derivative: bisection.
    """
    below, above = bands.edges()
    steepest = bands.highest - bands.lowest + 2.0
    low, high = -steepest, steepest
    for _ in range(_STEPS):
        slope = (low + high) / 2
        ramp = slope[:, None] * bands.codes
        rising = bands.codes[(below - ramp).argmax(axis=1)] > bands.codes[(above - ramp).argmin(axis=1)]
        low, high = np.where(rising, slope, low), np.where(rising, high, slope)
    return lines_of_slope(bands, (low + high) / 2)


def line_pass(bands: Bands, slope: float, gap: float, origin: int = 0) -> Rescale | None:
    """The ACT pass of a line through the one band of ``bands``; None where its numbers are beyond the registers.

    The bias counts input codes, the zero point output codes: offset = slope * bias + zero point.  Of all pairs the one
    that meets the offset best is taken, which is far better than either alone.  A slope close to a simple fraction
    reaches few offsets, so that others in the gap are tried as well.

    Args:
        slope: of the line with the widest gap.
        gap: of that line.
        origin: the input code from which those of ``bands`` are counted.
    """
    span = float(np.ptp(bands.codes)) or 1.0
    slopes = slope + max(gap, 0.0) / span * _SLOPES
    lines = lines_of_slope(bands.take(np.zeros(slopes.size, np.intp)), slopes)
    best, room = None, -np.inf
    for each, offset, width in zip(slopes.tolist(), lines.offset.tolist(), lines.gap.tolist(), strict=True):
        bias, zero_point = _bias_and_zero_point(each, offset - each * origin)
        left = width / 2 - abs(offset - each * (bias + origin) - zero_point)
        if abs(zero_point) < _ZERO_POINTS and left > room:
            best, room = (each, bias, zero_point), left
    if best is None:
        return None
    scale, shift = fixed_point(np.array([best[0]]))
    clip = (int(bands.lowest[0]), int(bands.highest[0]))
    return Rescale(np.array([best[1]], np.int32), scale, shift, best[2], *clip, rounding=Rounding.NTE)


def _bias_and_zero_point(slope: float, offset: float) -> tuple[int, int]:
    """The pair closest to offset = slope * bias + zero point."""
    middle = round(offset / slope) if abs(offset) < abs(slope) * _FARTHEST_BIAS else 0
    biases = np.arange(middle - _BIASES, middle + _BIASES + 1)
    rest = offset - slope * biases
    zero_points = np.rint(rest)
    index = int(np.where(np.abs(zero_points) < _ZERO_POINTS, np.abs(rest - zero_points), np.inf).argmin())
    return int(biases[index]), int(zero_points[index])


def find_line(codes: np.ndarray, wanted: np.ndarray, out: DType) -> Rescale | None:
    """The ACT pass that gives exactly ``wanted`` (int64) for every one of the codes; None if there is none."""
    results = wanted[None, :].astype(np.float64)
    bands = Bands.of(codes.astype(np.float64), results, results)
    line = widest_lines(bands)
    if line.gap[0] < -_ROUNDED:
        return None
    found = line_pass(bands, float(line.slope[0]), float(line.gap[0]))
    return found if found is not None and np.array_equal(applied(codes, found, out), wanted) else None


def applied(accumulators: np.ndarray, r: Rescale, out: DType) -> np.ndarray:
    """What a rescale with one entry makes of accumulators, as int64."""
    scale = 1 if r.scale is None else r.scale
    clip = (r.clip_min, r.clip_max)
    result = rescale(accumulators, r.bias, scale, r.shift, r.rounding, r.zero_point, *clip, out, r.sum_bits)
    return result.astype(np.int64)
