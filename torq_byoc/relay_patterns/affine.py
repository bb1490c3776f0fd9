"""clip(factor * x + offset): one NPU operator, whatever chain of multiplications, additions and clips it came from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.npu_model.numerics import rescale
from torq_byoc.relay_patterns.arithmetic import UNBOUNDED, Bounds, float_rescale, requantization, wide_sum
from torq_byoc.relay_patterns.composites import float_activation
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.quant_params import QuantParams

_MAX_WEIGHT = 127
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
        exact = requantization(gain, rounded - source.zero_point, out, bounds=affine.bounds)
        return low.emit("act", [x], shape, out, rescale=exact)
    narrow = source.dtype.size == 1
    weight, rescale = _finest(source, affine, out) if narrow else _weighted(source, affine, out, _MAX_WEIGHT)
    factor = low.constant(np.full((1,) * len(shape), weight, np.int8 if narrow else np.int16))
    return low.emit("mul", [x, factor], shape, out, rescale=rescale)


def _weighted(source: QuantParams, affine: Affine, out: QuantParams, weight: int) -> tuple[int, Rescale]:
    """The rescale of x * weight: the offset in units of a code / weight."""
    gain = affine.factor * source.scale / out.scale
    bias = round(affine.offset / out.scale / gain * weight) - weight * source.zero_point
    return weight, requantization(gain / weight, bias, out, bounds=affine.bounds, wide=wide_sum(source.dtype))


def _finest(source: QuantParams, affine: Affine, out: QuantParams) -> tuple[int, Rescale]:
    """The weight and rounding that give most of the 256 codes the result of the float32 operators.

    An offset of n + 1/2 output codes puts common inputs, zero above all, on a tie that the smallest error of the
    offset decides.
    """
    low, high = source.dtype.integer_range
    codes = np.arange(low, high + 1)
    wanted = _in_float32(source, affine, out, codes)

    def misses(candidate: tuple[int, Rescale]) -> int:
        weight, r = candidate
        assert r.scale is not None
        found = rescale(
            codes * weight, r.bias, r.scale, r.shift, r.rounding, r.zero_point, r.clip_min, r.clip_max, out.dtype
        )
        return int(np.count_nonzero(found != wanted))

    found = [_weighted(source, affine, out, weight) for weight in range(_MAX_WEIGHT, 0, -1)]
    to_even = [(weight, replace(rescale_, rounding=Rounding.NTE)) for weight, rescale_ in found]
    return min((*found, *to_even), key=misses)


def _in_float32(source: QuantParams, affine: Affine, out: QuantParams, codes: np.ndarray) -> np.ndarray:
    real = (codes - source.zero_point).astype(np.float32) * np.float32(source.scale)
    mapped = np.float32(affine.factor) * real + np.float32(affine.offset)
    steps = np.rint(np.clip(mapped, *affine.bounds) / np.float32(out.scale)) + out.zero_point
    return np.clip(steps, *out.dtype.integer_range).astype(out.dtype.numpy)


def lower_float(low: Lowering, x: str, affine: Affine) -> str:
    """One bf16 pass."""
    if affine.factor == 1.0:
        shifted = float_rescale(affine.offset, affine.bounds)
        return low.emit("act", [x], low.builder.info(x).shape, DType.BF16, rescale=shifted)
    return float_activation.affine(low.emitter, x, affine.factor, affine.offset, affine.bounds)
