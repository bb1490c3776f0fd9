"""Matrix products of integers by floating-point GEMM, exact because no partial sum leaves the mantissa."""

from __future__ import annotations

import numpy as np


def exact_matmul(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left @ right`` of integer arrays, or the float64 product of float arrays.

    Args:
        left: [..., M, K].
        right: [..., K, N].

    Returns:
        int64[..., M, N] for integers; float64 for floats.
    """
    if not np.issubdtype(left.dtype, np.integer):
        return np.matmul(left.astype(np.float64), right.astype(np.float64))
    bound = _magnitude(left) * _magnitude(right) * left.shape[-1]
    for float_type, mantissa in ((np.float32, 24), (np.float64, 53)):
        if bound < 1 << mantissa:
            return np.matmul(left.astype(float_type), right.astype(float_type)).astype(np.int64)
    return np.matmul(left.astype(np.int64), right.astype(np.int64))


def _magnitude(values: np.ndarray) -> int:
    return max(abs(int(values.min(initial=0))), abs(int(values.max(initial=0))))
