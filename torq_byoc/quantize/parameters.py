"""Scales and zero points from ranges, and integer weights and biases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.quantize.observers import Range

SMALLEST_SCALE = 2.0**-60
BIAS_LIMIT = 2.0**30
NEIGHBOURS = 256
"""Float32 numbers from the smallest weight scale upwards that may serve instead: 3e-5 more at most."""


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


def weights(
    values: np.ndarray, axis: int | None, floor: np.ndarray, input_scale: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 weights and their scales.

    Args:
        values: float weights.
        axis: channel axis, None for one scale.
        floor: smallest scale allowed for each channel (keeps the bias inside int32).
        input_scale: scale of the operand that is multiplied with the weights.

    Returns:
        int8 values, float32 scales (one a channel, or 0-d).
    """
    others = tuple(i for i in range(values.ndim) if i != axis) if axis is not None else None
    peak = np.abs(values).max(axis=others)
    smallest = np.maximum(np.maximum(peak / 127, floor), SMALLEST_SCALE).astype(np.float32)
    scale = _with_exact_products(smallest, input_scale)
    shape = [1] * values.ndim
    if axis is not None:
        shape[axis] = -1
    quantized = np.clip(np.rint(values / scale.reshape(shape).astype(np.float64)), -127, 127)
    return quantized.astype(np.int8), scale


def _with_exact_products(scales: np.ndarray, factor: np.float32) -> np.ndarray:
    """For each scale the neighbour above whose product with ``factor`` is nearest to a float32.

    The product is the bias's scale.  What rounding it to float32 changes, times a bias of many thousand steps, would
    move sums that are close to a tie.
    """
    bits = scales.view(np.int32)[..., None] + np.arange(NEIGHBOURS, dtype=np.int32)
    candidates = bits.view(np.float32)
    products = candidates.astype(np.float64) * float(factor)
    with np.errstate(over="ignore"):  # of a product beyond float32 no neighbour is nearer
        errors = np.abs(products.astype(np.float32) / products - 1.0)
    best = errors.argmin(axis=-1)[..., None]
    return np.take_along_axis(candidates, best, axis=-1)[..., 0]


def bias(values: np.ndarray, input_scale: np.float32, weight_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 bias and its scale, input scale x weight scale as a float32."""
    scale = (np.float32(input_scale) * weight_scale).astype(np.float32)
    quantized = np.rint(values.astype(np.float64) / scale.astype(np.float64))
    return np.clip(quantized, -(2.0**31), 2.0**31 - 1).astype(np.int32), np.broadcast_to(scale, values.shape).copy()


def bias_floor(values: np.ndarray | None, input_scale: np.float32) -> np.ndarray:
    """Smallest weight scale with which the bias stays below ``BIAS_LIMIT`` steps."""
    if values is None:
        return np.zeros(())
    return np.abs(values.astype(np.float64)) / (float(input_scale) * BIAS_LIMIT)
