"""Integer arithmetic of the ACT unit: wrapping sums, exact scaled shifts, saturation (see ``numerics.py``)."""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, Rounding

MAX_SHIFT = 63
"""Largest shift of ACT (a six-bit register)."""

LOW_WORD = np.int64(0xFFFFFFFF)
"""Mask of the low 32 bits."""

_EXACT_PRODUCT = 1 << 62


def wrap(values: np.ndarray, sum_bits: int) -> np.ndarray:
    """Two's complement numbers of ``sum_bits`` (1..64) bits: the low bits of integers, sign-extended.

    Returns:
        A new int64 array.
    """
    source = np.asarray(values)
    wrapped = np.array(source, np.int64)
    if sum_bits < source.dtype.itemsize * 8 + (source.dtype.kind == "u"):
        wrapped <<= 64 - sum_bits
        wrapped >>= 64 - sum_bits
    return wrapped


def clip_bounds(clip_min: float, clip_max: float, out: DType) -> tuple[int, int]:
    """Integer bounds of an output: the clip bounds within the range of the type."""
    low, high = out.integer_range
    low = low if clip_min == -math.inf else max(low, math.ceil(clip_min))
    high = high if clip_max == math.inf else min(high, math.floor(clip_max))
    return low, high


def saturate(values: np.ndarray, out: DType, clip_min: float = -math.inf, clip_max: float = math.inf) -> np.ndarray:
    """Clip int64 values to the bounds and to the range of an integer type; returns that type."""
    low, high = clip_bounds(clip_min, clip_max, out)
    return np.asarray(np.clip(values, low, high)).astype(out.numpy)


def update(operation: np.ufunc, values: np.ndarray, other: np.ndarray | float) -> np.ndarray:
    """``operation(values, other)``, in the memory of ``values`` where the result has their shape."""
    other = np.asarray(other, values.dtype)
    if np.broadcast(values, other).shape != values.shape:
        return operation(values, other)
    return operation(values, other, out=values)


def settled(values: np.ndarray, act: ActConfig, out: DType) -> np.ndarray:
    """Zero point, clip and narrowing: the end of every integer mode; overwrites ``values``."""
    low, high = clip_bounds(act.clip_min, act.clip_max, out)
    values = np.asarray(values)
    if act.zero_point:
        values += act.zero_point
    return np.minimum(np.maximum(values, low, out=values), high, out=values).astype(out.numpy)


def scaled(total: np.ndarray, scale: np.ndarray | int | None, act: ActConfig) -> np.ndarray:
    """``total * scale``, shifted right with rounding; overwrites ``total``.

    Exact for totals up to 49 bits and scales up to 32; results beyond 62 bits are held at that bound, far
    outside every output type.
    """
    if scale is None and act.shift == 0:
        return total
    factor = np.asarray(1 if scale is None else scale, np.int64)
    if _magnitude(total) * _magnitude(factor) + (1 << act.shift) > _EXACT_PRODUCT:
        return _shift_wide(total, factor, act.shift, act.rounding)
    addend = _addend(total, act.shift, act.rounding)
    product = total if scale is None else update(np.multiply, total, factor)
    if act.shift == 0:
        return product
    if act.rounding is Rounding.NTE:
        addend = (product >> act.shift) & 1
        addend += (1 << (act.shift - 1)) - 1
    product = update(np.add, product, addend)
    product >>= act.shift
    return product


def _magnitude(values: np.ndarray) -> int:
    """An upper bound of the absolute values, as a Python int."""
    values = np.asarray(values)
    if values.size == 0:
        return 0
    return max(abs(int(values.min())), abs(int(values.max())))


def _addend(total: np.ndarray, shift: int, rounding: Rounding) -> np.ndarray | int:
    """What is added before the shift; for ties to even, half a unit without regard to the tie.

    TOSA's double rounding adds 2^30 more, away from zero, for shifts beyond 31.
    """
    if shift == 0 or rounding is Rounding.OFF:
        return 0
    half = 1 << (shift - 1)
    if rounding is Rounding.DBL and shift > 31:
        return np.where(total >= 0, half + (1 << 30), half - (1 << 30))
    return half


def _shift_wide(total: np.ndarray, factor: np.ndarray, shift: int, rounding: Rounding) -> np.ndarray:
    """The same for products beyond int64, held as high * 2^32 + low with 0 <= low < 2^32."""
    partial = (total & LOW_WORD) * factor
    high = (total >> 32) * factor + (partial >> 32)
    low = partial & LOW_WORD
    addend = np.asarray(_addend(total, shift, rounding), np.int64)
    if rounding is Rounding.NTE and shift:
        addend = addend - 1 + ((low >> shift if shift < 32 else high >> (shift - 32)) & 1)
    low = low + (addend & LOW_WORD)
    high = high + (addend >> 32) + (low >> 32)
    low = low & LOW_WORD
    if shift >= 32:
        return high >> (shift - 32)
    bound = 1 << (30 + shift)
    high = np.minimum(np.maximum(high, -bound), bound - 1)
    return (high << (32 - shift)) + (low >> shift)
