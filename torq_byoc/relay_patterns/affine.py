"""clip(factor * x + offset): one NPU operator, whatever chain of multiplications, additions and clips it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.arithmetic import UNBOUNDED, Bounds, float_rescale, requantization, wide_sum
from torq_byoc.relay_patterns.composites import float_activation
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.quant_params import QuantParams

_TOLERANCE = 1 / 256
"""Output codes by which a rounded offset may move a result."""


@dataclass(frozen=True)
class Affine:
    """The function clip(factor * x + offset, bounds) of real numbers."""

    factor: float = 1.0
    offset: float = 0.0
    bounds: Bounds = UNBOUNDED

    def scaled(self, by: float) -> Affine:
        """This function, then a multiplication."""
        ends = sorted((self.bounds[0] * by, self.bounds[1] * by)) if by else [0.0, 0.0]
        return Affine(self.factor * by, self.offset * by, (ends[0], ends[1]))

    def shifted(self, by: float) -> Affine:
        """This function, then an addition."""
        return Affine(self.factor, self.offset + by, (self.bounds[0] + by, self.bounds[1] + by))

    def clipped(self, low: float, high: float) -> Affine:
        """This function, then a clip."""
        ends = (min(max(self.bounds[0], low), high), max(min(self.bounds[1], high), low))
        return Affine(self.factor, self.offset, ends)


def lower_quantized(low: Lowering, x: str, source: QuantParams, affine: Affine, out: QuantParams) -> str:
    """One ACT pass; a product with a constant when the offset needs fractions of an input code."""
    shape = low.builder.info(x).shape
    gain = affine.factor * source.scale / out.scale
    if gain == 0.0:
        affine, gain = Affine(source.scale, affine.offset, (affine.offset, affine.offset)), 1.0
    offset = affine.offset / out.scale / gain
    rounded = round(offset)
    if abs(offset - rounded) * abs(gain) <= _TOLERANCE:
        rescale = requantization(gain, rounded - source.zero_point, out, bounds=affine.bounds)
        return low.emit("act", [x], shape, out, rescale=rescale)
    weight = low.constant(np.full((1,) * len(shape), 127, np.int8 if source.dtype.size == 1 else np.int16))
    bias = round(offset * 127) - 127 * source.zero_point
    rescale = requantization(gain / 127, bias, out, bounds=affine.bounds, wide=wide_sum(source.dtype))
    return low.emit("mul", [x, weight], shape, out, rescale=rescale)


def lower_float(low: Lowering, x: str, affine: Affine) -> str:
    """One bf16 pass."""
    if affine.factor == 1.0:
        rescale = float_rescale(affine.offset, affine.bounds)
        return low.emit("act", [x], low.builder.info(x).shape, DType.BF16, rescale=rescale)
    return float_activation.affine(low.emitter, x, affine.factor, affine.offset, affine.bounds)
