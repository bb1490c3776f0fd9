"""Resampling of one axis as a matrix: every mode, coordinate transformation and scale that ONNX Resize knows.

Resize is separable: each result along an axis is a weighted sum of inputs along it, with weights that depend on
shapes and attributes only.  The formulas are those of the ONNX operator definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Resampling:
    """How one axis is resampled.

    Attributes:
        size: elements before.
        result: elements after.
        scale: the factor between them, as the model states it: ``result`` may be rounded.
        mode: "nearest", "linear" or "cubic".
        coordinates: ONNX name of the coordinate transformation.
        rounding: ONNX name of the nearest mode.
        cubic: the coefficient of the cubic kernel.
        exclude_outside: weights outside the tensor are dropped, and the others made to add up to 1.
        antialias: the kernel is stretched when the axis gets shorter.
        region: start and end of the region of interest, as shares of the axis.
    """

    size: int
    result: int
    scale: float
    mode: str
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    region: tuple[float, float] = (0.0, 1.0)

    def positions(self) -> np.ndarray:
        """For each result the place along the axis that it is taken from."""
        index = np.arange(self.result, dtype=np.float64)
        return _POSITIONS[self.coordinates](self, index)

    def outside(self) -> np.ndarray:
        """For each result whether its place lies outside the tensor and takes the extrapolation value."""
        place = self.positions()
        if self.coordinates != "tf_crop_and_resize":
            return np.zeros(self.result, bool)
        return (place < 0) | (place > self.size - 1)

    def matrix(self) -> np.ndarray:
        """Weights [result, size], float64."""
        weights = np.zeros((self.result, self.size))
        for row, place in enumerate(self.positions()):
            taps, values = self._taps(place)
            for tap, value in zip(taps, values, strict=True):
                weights[row, min(max(tap, 0), self.size - 1)] += value
        return weights

    def _taps(self, place: float) -> tuple[list[int], np.ndarray]:
        """Positions around a place, and their weights."""
        if self.mode == "nearest":
            return [int(_ROUNDINGS[self.rounding](place))], np.ones(1)
        stretch = min(1.0, self.scale) if self.antialias else 1.0
        reach = (1.0 if self.mode == "linear" else 2.0) / stretch
        taps = list(range(math.floor(place - reach) + 1, math.floor(place + reach) + 1))
        distances = np.abs((np.array(taps) - place) * stretch)
        values = np.maximum(0.0, 1.0 - distances) if self.mode == "linear" else _cubic(distances, self.cubic)
        if self.exclude_outside:
            values = np.where([0 <= tap < self.size for tap in taps], values, 0.0)
        return taps, values / values.sum() if self.exclude_outside or self.antialias else values


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _half_pixel(axis: Resampling, index: np.ndarray) -> np.ndarray:
    return (index + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(axis: Resampling, index: np.ndarray) -> np.ndarray:
    adjustment = axis.result / (axis.scale * axis.size)
    return axis.size / 2 * (1 - adjustment) + _half_pixel(axis, index)


def _pytorch_half_pixel(axis: Resampling, index: np.ndarray) -> np.ndarray:
    return _half_pixel(axis, index) if axis.result > 1 else np.zeros_like(index)


def _align_corners(axis: Resampling, index: np.ndarray) -> np.ndarray:
    return index * (axis.size - 1) / (axis.result - 1) if axis.result > 1 else np.zeros_like(index)


def _asymmetric(axis: Resampling, index: np.ndarray) -> np.ndarray:
    return index / axis.scale


def _tf_half_pixel(axis: Resampling, index: np.ndarray) -> np.ndarray:
    return (index + 0.5) / axis.scale


def _crop(axis: Resampling, index: np.ndarray) -> np.ndarray:
    start, end = axis.region
    if axis.result == 1:
        return np.full_like(index, 0.5 * (start + end) * (axis.size - 1))
    return start * (axis.size - 1) + index * (end - start) * (axis.size - 1) / (axis.result - 1)


_POSITIONS: dict[str, Callable[[Resampling, np.ndarray], np.ndarray]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel,
    "tf_crop_and_resize": _crop,
}

_ROUNDINGS: dict[str, Callable[[float], float]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda place: math.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: math.floor(place + 0.5),
}

COORDINATES = frozenset(_POSITIONS)
ROUNDINGS = frozenset(_ROUNDINGS)
