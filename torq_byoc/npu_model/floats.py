"""Rounding to the float types of the machine (see ``numerics.py``)."""

from __future__ import annotations

import numpy as np

from torq_byoc.npu_model.dtypes import DType


def round_bf16(x: np.ndarray) -> np.ndarray:
    """fp32 (or float64, rounded to fp32 first) to bfloat16, to nearest, ties to even; NaN is 0x7FC0."""
    with np.errstate(over="ignore"):
        single = np.asarray(x, np.float32)
    word = single.view(np.uint32)
    rounded = np.array(word)
    rounded >>= 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += word
    rounded >>= 16
    nan = np.isnan(single)
    if nan.any():
        rounded[nan] = 0x7FC0
    return rounded.astype(np.uint16).view(DType.BF16.numpy)


def round_to(x: np.ndarray, out: DType) -> np.ndarray:
    """Round float64 or fp32 numbers to a float type, to nearest, ties to even; NaN becomes the quiet NaN."""
    if out is DType.BF16:
        return round_bf16(x)
    with np.errstate(over="ignore"):
        single = np.asarray(x, np.float32)
    nan = np.isnan(single)
    return np.where(nan, np.float32(np.nan), single) if nan.any() else single
