"""Rescale parameters as the slice wants them: the ACT configuration and the bias/scale operand."""

from __future__ import annotations

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig
from torq_byoc.npu_model.numerics import apply_act, register_bound


def act_config(rescale: Rescale | None, *operands: DType) -> ActConfig:
    """The ACT stage of a rescale; without one the accumulator is clipped to the output type.

    Args:
        rescale: the node's rescale, or None.
        operands: types that are multiplied; an int16 among them needs the 48-bit sum.
    """
    if rescale is None:
        return ActConfig(sum_bits=48 if any(operand.size > 1 and not operand.is_float for operand in operands) else 32)
    return ActConfig(
        shift=rescale.shift,
        rounding=rescale.rounding,
        zero_point=rescale.zero_point,
        clip_min=register_bound(rescale.clip_min),
        clip_max=register_bound(rescale.clip_max),
        sum_bits=rescale.sum_bits,
    )


def pair_bytes(is_float: bool) -> int:
    """Bytes of one entry of the B operand: a bias/scale pair, or an fp32 bias alone."""
    return 4 if is_float else 8


def pair_type(is_float: bool) -> DType:
    """Element type of the B operand."""
    return DType.FP32 if is_float else DType.INT32


def is_uniform(rescale: Rescale | None) -> bool:
    """Whether all entries of a rescale are equal, so that one pair serves every output."""
    if rescale is None:
        return True
    return _all_equal(rescale.bias) and (rescale.scale is None or _all_equal(rescale.scale))


def is_identity(rescale: Rescale | None) -> bool:
    """Whether bias is 0 and scale 1 everywhere: what ACT does without a B operand."""
    if rescale is None:
        return True
    return not np.any(rescale.bias) and (rescale.scale is None or bool(np.all(np.asarray(rescale.scale) == 1)))


def entry_kinds(rescale: Rescale | None) -> tuple[tuple[int, bool, bool, bool], ...]:
    """What kernels look at in biases and scales: how many there are, whether all are equal, all 0, all 1."""
    found = []
    for values in () if rescale is None else (rescale.bias, rescale.scale):
        flat = np.ones(0) if values is None else np.atleast_1d(values)
        found.append((len(flat), bool(np.all(flat == flat[:1])), not np.any(flat), bool(np.all(flat == 1))))
    return tuple(found)


def pairs(rescale: Rescale | None, count: int, is_float: bool) -> np.ndarray:
    """The B operand's entries as bytes.

    Args:
        rescale: entries of length ``count`` or 1; None gives bias 0 and scale 1.
        count: entries wanted.
        is_float: fp32 biases instead of int32 pairs.

    Returns:
        uint8[count, 8], or uint8[count, 4] for float.
    """
    bias = np.zeros(1) if rescale is None else np.atleast_1d(rescale.bias)
    if is_float:
        return np.ascontiguousarray(np.broadcast_to(bias.astype(np.float32), count)).view(np.uint8).reshape(count, 4)
    scale = np.ones(1) if rescale is None or rescale.scale is None else np.atleast_1d(rescale.scale)
    table = np.empty((count, 2), np.int32)
    table[:, 0], table[:, 1] = bias, scale
    return table.view(np.uint8).reshape(count, 8)


def _all_equal(values: np.ndarray) -> bool:
    flat = np.asarray(values).reshape(-1)
    return bool(np.all(flat == flat[0]))


def rescaled(acc: np.ndarray, rescale: Rescale | None, out: DType, *operands: DType) -> np.ndarray:
    """ACT on the accumulators of a whole tensor.

    Args:
        acc: int64 sums, or floats for bf16 operands; in the output's shape.
        rescale: the node's rescale, or None.
        out: output type.
        operands: types that were multiplied or summed.

    Returns:
        Array of ``out.numpy``.
    """
    bias: np.ndarray | float = 0
    scale = None
    if rescale is not None:
        bias = _aligned(rescale.bias, rescale.axis, acc.shape)
        scale = None if rescale.scale is None else _aligned(rescale.scale, rescale.axis, acc.shape)
    act = act_config(rescale, *operands)
    return apply_act(acc, act, bias, scale, out, data_is_float=operands[0].is_float)


def _aligned(values: np.ndarray, axis: int | None, shape: tuple[int, ...]) -> np.ndarray:
    """Entries in a shape that broadcasts: along ``axis``, or over it and all later axes."""
    values = np.atleast_1d(values)
    if values.size == 1 or axis is None:
        return values.reshape(-1)[:1]
    axis %= len(shape)
    if values.size == shape[axis]:
        return values.reshape(-1, *(1,) * (len(shape) - axis - 1))
    return values.reshape(shape[axis:])
