"""Local response normalisation: x * (bias + alpha / size * sum of squares over nearby channels) ** -beta.

The window runs over channels, so [N, C, H, W] is viewed as [N, 1, C, H * W] and summed by a pool of
``size`` x 1 with zero padding.  The power is one table: of the sum in integers, of its bit pattern in bf16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import float_table, tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale, to_codes
from torq_byoc.relay_patterns.composites.float_activation import affine
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.quant_params import QuantParams

FLOAT_BINADES = 32
"""The bf16 denominator is resolved from ``bias`` up to 2**31 times that."""
SUM_BITS = 30
"""Magnitude of the integer sum of squares; squares of 16-bit values lose their lowest bits to fit."""
INT32_MAX = (1 << 31) - 1
NARROW_RATIO = 2.0
"""Largest ratio of the sum's part of the denominator to ``bias`` for which a linear table is good."""


@dataclass(frozen=True)
class Lrn:
    """ONNX's attributes; the window of channel c is [c - floor((size-1)/2), c + ceil((size-1)/2)]."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


def lower(builder: GraphBuilder, x: str, lrn: Lrn, out: QuantParams | None, origin: str) -> str:
    """Decompose LRN.

    Args:
        builder: receives the nodes.
        x: [N, C, ...]; int8, uint8 or int16 with a scale, or bf16.
        lrn: the attributes.
        out: quantization of the result; None for bf16.
        origin: the ONNX node.

    Returns:
        Name of the output tensor.

    Raises:
        UnsupportedOpError: see ``refusals``.
        QuantizationError: x has no scale, or scales are out of reach.
    """
    e = Emitter(builder, origin)
    source = None if out is None else quantization(e, x)
    if reasons := refusals(lrn, source):
        raise UnsupportedOpError(
            "LRN's denominator cannot be computed",
            where=origin,
            why=f"bias {lrn.bias:g}, alpha {lrn.alpha:g}, beta {lrn.beta:g}: {'; '.join(reasons)}",
            remedy="leave the operator to the CPU",
        )
    return _lower_float(e, x, lrn) if out is None or source is None else _lower_integer(e, x, lrn, source, out)


def refusals(lrn: Lrn, source: QuantParams | None) -> list[str]:
    """Why there is no decomposition; ``source`` is the quantization of x, None for bf16."""
    if not (0.0 < lrn.bias < math.inf and 0.0 <= lrn.alpha < math.inf and math.isfinite(lrn.beta)):
        return ["its denominator may reach zero, or is no finite number"]
    if source is None:
        return []
    squares = _Squares.of(lrn, source)
    if squares.is_narrow(lrn) or (math.isfinite(squares.weight) and squares.bias(lrn) > 0):
        return []
    return ["its bias is less than half a unit of the sum of squares"]


@dataclass(frozen=True)
class _Squares:
    """Sums of squares of codes.

    Attributes:
        dropped: lowest bits that squares lose.
        largest: sum.
        weight: what a unit of the sum adds to the denominator.
    """

    dropped: int
    largest: int
    weight: float

    @classmethod
    def of(cls, lrn: Lrn, source: QuantParams) -> _Squares:
        low, high = source.dtype.integer_range
        largest = lrn.size * max(high - source.zero_point, source.zero_point - low) ** 2
        dropped = max(0, largest.bit_length() - SUM_BITS)
        return cls(dropped, largest >> dropped, math.ldexp(lrn.alpha * source.scale**2 / lrn.size, dropped))

    def is_narrow(self, lrn: Lrn) -> bool:
        """Whether the sum adds so little to the bias that a table may be linear."""
        return self.weight * self.largest <= NARROW_RATIO * lrn.bias

    def headroom(self, lrn: Lrn) -> int:
        """Bits by which bias and sum may be enlarged together."""
        return max(0, 30 - math.ceil(math.log2(self.largest + lrn.bias / self.weight)))

    def bias(self, lrn: Lrn) -> int:
        """The bias in units of the enlarged sum."""
        return round(math.ldexp(lrn.bias / self.weight, self.headroom(lrn)))


def _lower_float(e: Emitter, x: str, lrn: Lrn) -> str:
    total = _window_sum(e, e.mul(x, x, DType.BF16), lrn.size, DType.BF16, float_rescale())
    base = affine(e, total, lrn.alpha / lrn.size, lrn.bias, dtype=DType.FP32)
    lowest = math.floor(math.log2(lrn.bias))
    return e.mul(x, float_table.lower_binades(e, base, lambda b: b**-lrn.beta, lowest, FLOAT_BINADES), DType.BF16)


def _lower_integer(e: Emitter, x: str, lrn: Lrn, source: QuantParams, out: QuantParams) -> str:
    source.centred()
    squares = _Squares.of(lrn, source)
    square = _square(e, x, source, squares.dropped)
    lower_gain = _narrow if squares.is_narrow(lrn) else _wide
    return lower_gain(e, x, square, lrn, squares, source, out)


def _square(e: Emitter, x: str, source: QuantParams, dropped: int) -> str:
    """Squares of the values in codes, without their lowest bits; those of 8-bit codes are whole numbers of 16 bits."""
    if source.dtype.size > 1:
        return e.mul(x, x, DType.INT32, integer_rescale(2.0**-dropped, sum_bits=48))
    centred = source.recoded() or source.centred()
    if centred == source:
        return e.mul(x, x, DType.UINT16)
    plain = e.act(x, centred.dtype, integer_rescale(bias=-source.zero_point))
    if centred.dtype.size == 1:
        return e.mul(plain, plain, DType.UINT16)
    return _times(e, x, plain, source, DType.UINT16)


def _times(e: Emitter, x: str, factor: str, source: QuantParams, dtype: DType) -> str:
    """The values in codes times a 16-bit tensor."""
    return e.mul(x, factor, dtype, integer_rescale(sum_bits=48), zero_point=source.zero_point)


def _narrow(e: Emitter, x: str, square: str, lrn: Lrn, squares: _Squares, source: QuantParams, out: QuantParams) -> str:
    """The gain stays within a small factor: a whole number of units, and a table of the sum for the rest.

    The table's 16 bits resolve the gain's spread instead of the gain itself, which is often forty times as large.
    """
    weight, largest = squares.weight, squares.largest
    total = _window_sum(e, square, lrn.size, DType.INT32, integer_rescale())
    index = integer_rescale((tables.POSITIONS - 1) / largest, bias=-((largest + 1) // 2))
    sums = tables.positions() * (largest / (tables.POSITIONS - 1)) + (largest + 1) // 2
    gains = (lrn.bias + weight * np.maximum(sums, 0.0)) ** -lrn.beta
    middle, spread = float(gains.max() + gains.min()) / 2, float(gains.max() - gains.min()) / 2
    low, high = source.dtype.integer_range
    peak = max(high - source.zero_point, source.zero_point - low)
    unit = max(spread / (tables.INT16_MAX - 1), middle / (INT32_MAX // peak + tables.INT16_MIN))
    whole = round(middle / unit)
    rest = e.table(total, tables.fit_table(gains / unit - whole).table, index, DType.INT16)
    scaled = e.act(x, DType.INT32, integer_rescale(whole, bias=-source.zero_point))
    varying = _times(e, x, rest, source, DType.INT32)
    return e.sum2(
        scaled, varying, (1, 1), out.dtype, to_codes(source.scale / out.scale * unit, out, where=e.origin), out=out
    )


def _wide(e: Emitter, x: str, square: str, lrn: Lrn, squares: _Squares, source: QuantParams, out: QuantParams) -> str:
    """The gain spans orders of magnitude: bias / weight + sum as a float, a table of its bit pattern."""
    offset, headroom, bias = lrn.bias / squares.weight, squares.headroom(lrn), squares.bias(lrn)
    total = _window_sum(e, square, lrn.size, DType.INT32, integer_rescale(1 << headroom))
    base = e.act(total, DType.FP32, integer_rescale(bias=bias), mode="I2F")
    factor = source.scale / out.scale
    binades = 1 << math.ceil(math.log2(math.log2(1 + squares.largest / offset) + 1))
    gain = float_table.lower_binades(
        e,
        base,
        lambda b: factor * (squares.weight * np.ldexp(b, -headroom)) ** -lrn.beta,
        math.floor(math.log2(bias)),
        binades,
    )
    value = e.act(x, DType.BF16, integer_rescale(bias=-source.zero_point), mode="I2F")
    return e.to_codes(e.mul(value, gain, DType.FP32), out)


def _window_sum(e: Emitter, x: str, size: int, dtype: DType, rescale: Rescale) -> str:
    """Sums over ``size`` neighbouring channels, zeros outside."""
    shape = e.info(x).shape
    plane = (shape[0], 1, shape[1], math.prod(shape[2:]))
    before = (size - 1) // 2
    pooled = e.emit(
        "sumpool",
        [e.reshape(x, plane)],
        dtype,
        shape=plane,
        rescale=rescale,
        kernel=(size, 1),
        strides=(1, 1),
        pads=(before, 0, size - 1 - before, 0),
        dilations=(1, 1),
        pad_value=0,
    )
    return e.reshape(pooled, shape)
