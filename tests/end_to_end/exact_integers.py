"""Quantized operators by brute force: sums of integers as Python or int64 numbers, one rounding, half to even.

Written from the definitions of ONNX alone; nothing here is shared with the compiler or with onnxruntime.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

F32 = np.float32


@dataclass(frozen=True)
class Codes:
    """Scale (float32, one or one a channel), zero point and type of a quantized tensor."""

    scale: float | np.ndarray
    zero: int
    dtype: type

    @property
    def factor(self) -> np.ndarray:
        """The scale as the float32 number that the model holds, in float64."""
        return np.asarray(self.scale, F32).astype(np.float64)

    @property
    def zero_point(self) -> np.ndarray:
        """The zero point in the tensor's type, as long as the scale."""
        return np.full(np.shape(self.scale), self.zero, self.dtype)

    def centred(self, codes: np.ndarray) -> np.ndarray:
        """Codes less their zero point."""
        return codes.astype(np.int64) - self.zero

    def real(self, codes: np.ndarray, axis: int = -1) -> np.ndarray:
        """What codes stand for, in float64."""
        shape = [1] * codes.ndim
        if np.ndim(self.scale):
            shape[axis] = -1
        return self.centred(codes) * self.factor.reshape(shape)

    def codes(self, real: np.ndarray) -> np.ndarray:
        """Codes of real numbers: divide, round half to even, add the zero point, saturate."""
        return self.saturated(np.rint(np.asarray(real, np.float64) / self.factor))

    def saturated(self, steps: np.ndarray) -> np.ndarray:
        """Steps from the zero point as codes of the type."""
        limits = np.iinfo(self.dtype)
        return np.clip(steps + self.zero, limits.min, limits.max).astype(self.dtype)

    def of_terms(self, *terms: tuple[np.ndarray, np.ndarray | float], divisor: int | np.ndarray = 1) -> np.ndarray:
        """Codes of a sum of integers times reals, over ``divisor``; exact rationals, so a tie is a tie.

        Args:
            terms: int64 arrays with the real value of one (float64); all broadcast together.
            divisor: positive integers.
        """
        flat = [value for term in terms for value in term]
        arrays = np.broadcast_arrays(*(np.asarray(value) for value in flat), np.asarray(divisor))
        steps = np.empty(arrays[0].shape, np.int64)
        scale = Fraction(float(self.factor))
        for place in np.ndindex(steps.shape):
            values = [array[place] for array in arrays]
            pairs = zip(values[:-1:2], values[1:-1:2], strict=True)
            total = sum(int(count) * Fraction(float(unit)) for count, unit in pairs)
            steps[place] = round(total / (scale * int(values[-1])))
        return self.saturated(steps)


def convolve(
    data: np.ndarray,
    weights: np.ndarray,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Sums of products of NCHW data and OIHW weights, int64 or float64; pads are top, left, bottom, right."""
    batch, _, height, width = data.shape
    channels, depth, rows, columns = weights.shape
    padded = np.pad(data, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    high = (padded.shape[2] - dilations[0] * (rows - 1) - 1) // strides[0] + 1
    wide = (padded.shape[3] - dilations[1] * (columns - 1) - 1) // strides[1] + 1
    result = np.zeros((batch, channels, high, wide), np.result_type(padded, weights))
    for channel, row, column in itertools.product(range(channels), range(rows), range(columns)):
        first = channel // (channels // groups) * depth
        top, left = row * dilations[0], column * dilations[1]
        window = padded[:, first : first + depth, top:, left:][:, :, :: strides[0], :: strides[1]][:, :, :high, :wide]
        result[:, channel] += np.einsum("ncij,c->nij", window, weights[channel, :, row, column])
    return result


def window_sums(data: np.ndarray, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> np.ndarray:
    """Sums of int64 NCHW data over windows; outside there are zeros."""
    channels = data.shape[1]
    return convolve(data, np.ones((channels, 1, *kernel), np.int64), strides, pads, groups=channels)


def awkward(shape: Sequence[int], kind: Codes, seed: int = 0, channel_axis: int | None = 1) -> np.ndarray:
    """Codes over the whole type, both ends included; one channel near the zero point, one at the ends only."""
    rng, limits = np.random.default_rng(seed), np.iinfo(kind.dtype)
    codes = rng.integers(limits.min, limits.max, tuple(shape), endpoint=True)
    if channel_axis is not None and len(shape) > channel_axis and shape[channel_axis] > 2:
        places = np.moveaxis(codes, channel_axis, 0)
        places[0] = np.clip(kind.zero + rng.integers(-1, 2, places[0].shape), limits.min, limits.max)
        places[1] = rng.choice([limits.min, limits.max], places[1].shape)
    flat = codes.reshape(-1)
    flat[: 2 if flat.size > 2 else 0] = (limits.min, limits.max)[: flat.size]
    return codes.astype(kind.dtype)
