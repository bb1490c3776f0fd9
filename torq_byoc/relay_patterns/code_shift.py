"""What an integer rescale does to codes if that is no more than a move and a clip, tried on all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.rescaling import is_uniform, rescaled
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.numerics import clip_bounds


@dataclass(frozen=True)
class CodeShift:
    """code -> min(max(code + by, low), high)."""

    by: int
    low: int
    high: int

    def changes_nothing(self, source: DType, target: DType) -> bool:
        """Whether every code of ``source`` is its own result in ``target``."""
        return self.by == 0 and source is target and (self.low, self.high) == target.integer_range


def code_shift(rescale: Rescale, source: DType, target: DType) -> CodeShift | None:
    """The move and clip that a rescale is; None where it is anything else, or its codes are of more than 16 bits."""
    if source.is_float or target.is_float or source.size > 2 or not is_uniform(rescale):
        return None
    first, last = source.integer_range
    codes = np.arange(first, last + 1)
    results = rescaled(codes, replace(rescale, axis=None), target, source).astype(np.int64)
    low, high = clip_bounds(rescale.clip_min, rescale.clip_max, target)
    inside = np.flatnonzero((results > low) & (results < high))
    if not inside.size:
        return None
    by = int(results[inside[0]] - codes[inside[0]])
    return CodeShift(by, low, high) if np.array_equal(results, np.clip(codes + by, low, high)) else None
