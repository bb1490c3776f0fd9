"""clip(factor * x + offset): one NPU operator, whatever chain of multiplications, additions and clips it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.numerics import rescale
from torq_byoc.relay_patterns.arithmetic import INT32, UNBOUNDED, Bounds, float_rescale, requantization, wide_sum
from torq_byoc.relay_patterns.composites import float_activation
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.quant_params import QuantParams

_ENDLESS = 2.0**62
"""Stands for any bias far beyond the register."""
_NARROW = 127
_WIDE = 32767
_NARROW_SOURCE = (1, *range(_NARROW, 1, -1), *range(_WIDE, _WIDE - _NARROW, -1))
_WIDE_SOURCE = (1, *range(_WIDE, _WIDE - 16, -1))
"""Weights to try, cheapest first, for codes of one byte and of two, whose product takes 16-bit weights anyway."""


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
    if affine.factor == 0.0:
        affine = Affine(source.scale, affine.offset, (affine.offset, affine.offset))
    weight, rescale = _cheapest_exact(source, affine, out)
    if weight == 1:
        return low.emit("act", [x], shape, out, rescale=rescale)
    dtype = DType.INT8 if weight <= _NARROW and source.dtype.size == 1 else DType.INT16
    factor = low.constant(np.full((1,) * len(shape), weight, dtype.numpy))
    return low.emit("mul", [x, factor], shape, out, rescale=rescale)


def _cheapest_exact(source: QuantParams, affine: Affine, out: QuantParams) -> tuple[int, Rescale]:
    """The weight whose bias, a whole number of codes / weight, gives every input code its result; or most of them.

    Weights of one byte run at twice the rate of wider ones, and weight 1 needs no product at all.  An offset of
    n + 1/2 output codes puts common inputs, zero above all, on a tie that the smallest error of the offset decides.
    """
    low, high = source.dtype.integer_range
    codes = np.arange(low, high + 1)
    wanted = out.quantize(np.clip(affine.factor * source.dequantize(codes) + affine.offset, *affine.bounds))
    best, fewest = None, codes.size + 1
    for weight in _NARROW_SOURCE if source.dtype.size == 1 else _WIDE_SOURCE:
        bias = _bias(source, affine, out, weight)
        if weight > 1 and not INT32[0] <= bias <= INT32[1]:
            continue
        gain = affine.factor * source.scale / out.scale / weight
        wide = weight > _NARROW or (weight > 1 and wide_sum(source.dtype))
        candidate = requantization(gain, bias, out, bounds=affine.bounds, wide=wide)
        misses = int(np.count_nonzero(_applied(codes * weight, candidate, out) != wanted))
        if misses < fewest:
            best, fewest = (weight, candidate), misses
        if not misses:
            break
    assert best is not None
    return best


def _applied(accumulators: np.ndarray, r: Rescale, out: QuantParams) -> np.ndarray:
    assert r.scale is not None
    clip = (r.clip_min, r.clip_max)
    return rescale(accumulators, r.bias, r.scale, r.shift, r.rounding, r.zero_point, *clip, out.dtype, r.sum_bits)


def _bias(source: QuantParams, affine: Affine, out: QuantParams, weight: int) -> int:
    """The offset and the zero point in units of a code / weight; beyond 62 bits it is no longer told apart."""
    steps = affine.offset / (affine.factor * source.scale) * weight
    return round(max(-_ENDLESS, min(steps, _ENDLESS))) - weight * source.zero_point


def lower_float(low: Lowering, x: str, affine: Affine) -> str:
    """One bf16 pass."""
    if affine.factor == 1.0:
        shifted = float_rescale(affine.offset, affine.bounds)
        return low.emit("act", [x], low.builder.info(x).shape, DType.BF16, rescale=shifted)
    return float_activation.affine(low.emitter, x, affine.factor, affine.offset, affine.bounds)
