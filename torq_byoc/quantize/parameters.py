"""Scales and zero points from ranges, and integer weights and biases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.quantize.ranges import Range

SMALLEST_SCALE = 2.0**-60
BIAS_LIMIT = 2.0**30


@dataclass(frozen=True)
class TensorQuantization:
    """q = round(x / scale) + zero_point in ``dtype`` ("int8" or "int16")."""

    scale: np.float32
    zero_point: int
    dtype: str


def activation(observed: Range, dtype: str) -> TensorQuantization:
    """Asymmetric int8, or symmetric int16, parameters for a range; zero is always representable.

    Args:
        observed: smallest and largest value.
        dtype: "int8" or "int16".
    """
    low, high = min(observed.low, 0.0), max(observed.high, 0.0)
    if dtype == "int16":
        scale = np.float32(max(-low, high, SMALLEST_SCALE * 32767) / 32767)
        return TensorQuantization(scale, 0, dtype)
    scale = np.float32(max(high - low, SMALLEST_SCALE * 255) / 255)
    zero_point = int(np.clip(np.rint(-128 - low / float(scale)), -128, 127))
    return TensorQuantization(scale, zero_point, dtype)


def weights(values: np.ndarray, axis: int | None, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 weights and their scales.

    Args:
        values: float weights.
        axis: channel axis, None for one scale.
        floor: smallest scale allowed for each channel (keeps the bias inside int32).

    Returns:
        int8 values, float32 scales (one a channel, or 0-d).
    """
    others = tuple(i for i in range(values.ndim) if i != axis) if axis is not None else None
    peak = np.abs(values).max(axis=others)
    scale = np.maximum(np.maximum(peak / 127, floor), SMALLEST_SCALE).astype(np.float32)
    shape = [1] * values.ndim
    if axis is not None:
        shape[axis] = -1
    quantized = np.clip(np.rint(values / scale.reshape(shape).astype(np.float64)), -127, 127)
    return quantized.astype(np.int8), scale


def bias(values: np.ndarray, input_scale: np.float32, weight_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 bias and its scale, input scale x weight scale."""
    scale = (np.float32(input_scale) * weight_scale).astype(np.float32)
    quantized = np.rint(values.astype(np.float64) / scale.astype(np.float64))
    return np.clip(quantized, -(2.0**31), 2.0**31 - 1).astype(np.int32), np.broadcast_to(scale, values.shape).copy()


def bias_floor(values: np.ndarray | None, input_scale: np.float32) -> np.ndarray:
    """Smallest weight scale with which the bias stays below ``BIAS_LIMIT`` steps."""
    if values is None:
        return np.float64(0.0)
    return np.abs(values.astype(np.float64)) / (float(input_scale) * BIAS_LIMIT)
