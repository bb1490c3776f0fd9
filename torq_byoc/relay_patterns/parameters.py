"""Constant operands of convolutions and matrix products: integer weights and biases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm.ir import Call

from torq_byoc.relay_patterns.view import Operand, View, op_name, static_shape

_WEIGHT_TYPES = ("int8", "uint8", "int16")


def weight_reasons(weight: Operand, channel_axis: int) -> list[str]:
    """Weights must be constant integers with scales along their output-channel axis."""
    if weight.constant is None:
        return ["its weights are not constant"]
    if weight.quant is None:
        return ["its weights are not quantized"]
    reasons = []
    if weight.quant.dtype not in _WEIGHT_TYPES:
        reasons.append(f"its weights have type {weight.quant.dtype}, not one of {', '.join(_WEIGHT_TYPES)}")
    if not weight.quant.per_tensor and weight.quant.axis != channel_axis % len(weight.shape):
        reasons.append(f"its weights are quantized along axis {weight.quant.axis}, which is not their output channel")
    if not reasons and _centered(weight).dtype == np.int32:
        reasons.append("its weights need more than 16 bits once their zero point is removed")
    return reasons


def integer_weights(weight: Operand, channel_axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights without zero point (int8, else int16) and float64 scales, one a channel."""
    assert weight.quant is not None
    weights = _centered(weight)
    scales = np.broadcast_to(weight.quant.scale, weight.shape[channel_axis])
    others = tuple(axis for axis in range(weights.ndim) if axis != channel_axis % weights.ndim)
    alive = weights.any(axis=others)
    # Any scale is right for a channel of zeros; exporters write the smallest float there, and with it the
    # channel's bias would leave 32 bits.
    return weights, np.where(alive, scales, scales[alive].max()) if alive.any() else scales


def _centered(weight: Operand) -> np.ndarray:
    assert weight.quant is not None and weight.constant is not None
    stored = weight.constant
    if not weight.quant.zero_point.any():
        return stored if stored.dtype in (np.int8, np.int16) else narrowest(stored.astype(np.int32))
    _, zero_point = weight.quant.expanded(stored.ndim)
    return narrowest(stored.astype(np.int32) - zero_point.astype(np.int32))


def narrowest(values: np.ndarray) -> np.ndarray:
    """The integers as int8 or int16 where all of them fit; as they are otherwise."""
    for dtype in (np.int8, np.int16):
        info = np.iinfo(dtype)
        if values.min() >= info.min and values.max() <= info.max:
            return values.astype(dtype)
    return values


@dataclass(frozen=True, eq=False)
class Bias:
    """Real values of a bias (one a channel) and reasons why it cannot be folded."""

    real: np.ndarray
    reasons: list[str]


def bias_of(view: View, product: Call, channel_axis: int) -> Bias:
    """The constant added to a convolution or matrix product; zeros when there is none."""
    shape = static_shape(product)
    channels = shape[channel_axis]
    add = view.find("add")
    if add is None:
        return Bias(np.zeros(channels), [])
    on_left = op_name(view.resolve(add.args[0])) == op_name(product)
    operand = view.operand(add.args[1] if on_left else add.args[0])
    if operand.constant is None:
        return Bias(np.zeros(channels), ["its bias is not constant"])
    values = operand.real()
    expected = [1] * len(shape)
    expected[channel_axis] = channels
    aligned = (1,) * (len(shape) - values.ndim) + values.shape
    if len(aligned) != len(shape) or (list(aligned) != expected and values.size != 1):
        return Bias(np.zeros(channels), [f"its bias has shape {list(values.shape)}, not one value a channel"])
    return Bias(np.broadcast_to(values.reshape(-1), channels), [])
