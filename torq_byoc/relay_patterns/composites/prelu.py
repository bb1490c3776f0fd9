"""PRelu: x above zero, slope * x below; slopes shared, per channel, or of any shape that broadcasts to x.

Integer: a shared slope is an ordinary table.  Otherwise the two halves are separated in int16, the lower
one is multiplied by the slopes with ``FRACTION_BITS`` or fewer extra fraction bits, and one sum with the
exact output multiplier joins them, so only the sum rounds to codes.

bf16: max(x, slope * x) when no slope exceeds 1, min when none is below 1, else the sum of both halves.
"""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import activation
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale, to_codes
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.quant_params import QuantParams

FRACTION_BITS = 7
SLOPE_BITS = 15


def lower(builder: GraphBuilder, x: str, slopes: np.ndarray, out: QuantParams | None, origin: str) -> str:
    """Decompose PRelu.

    Args:
        builder: receives the nodes.
        x: int8, uint8 or int16 with a scale, or bf16.
        slopes: real slopes; broadcast to x by numpy's rules.
        out: quantization of the result; None for bf16.
        origin: the ONNX node.

    Returns:
        Name of the output tensor.

    Raises:
        QuantizationError: x has no scale, or scales are out of reach.
    """
    e = Emitter(builder, origin)
    slopes = np.asarray(slopes, np.float64)
    if out is None:
        return _lower_float(e, x, slopes)
    if slopes.size == 1:
        return activation.lower(builder, x, "leaky_relu", out, origin, alpha=float(slopes.reshape(-1)[0]))
    return _lower_integer(e, x, slopes, out)


def _lower_float(e: Emitter, x: str, slopes: np.ndarray) -> str:
    factor = e.constant(slopes.astype(DType.BF16.numpy).reshape(_aligned(slopes, len(e.info(x).shape))), "slopes")
    if slopes.max() <= 1 or slopes.min() >= 1:
        scaled = e.mul(x, factor, DType.BF16)
        return e.maximum(x, scaled) if slopes.max() <= 1 else e.minimum(x, scaled)
    above = e.act(x, DType.BF16, float_rescale(clip=(0.0, math.inf)))
    below = e.act(x, DType.BF16, float_rescale(clip=(-math.inf, 0.0)))
    return e.sum2(above, e.mul(below, factor, DType.BF16), (1.0, 1.0), DType.BF16)


def _lower_integer(e: Emitter, x: str, slopes: np.ndarray, out: QuantParams) -> str:
    source = quantization(e, x)
    low, high = source.dtype.integer_range
    largest = max(1.0, float(np.abs(slopes).max()))
    span = max(high - source.zero_point, source.zero_point - low)
    bits = min(FRACTION_BITS, math.floor(math.log2((2**15 - 1) / (span * largest))))
    source.centred()
    above = e.act(x, DType.INT16, integer_rescale(bias=-source.zero_point, clip=(0, math.inf)))
    below = e.act(x, DType.INT16, integer_rescale(bias=-source.zero_point, clip=(-math.inf, 0)))
    scaled = _scale_below(e, below, slopes, bits)
    rescale = to_codes(math.ldexp(source.scale / out.scale, -max(bits, 0)), out, sum_bits=48, where=e.origin)
    return e.sum2(above, scaled, (1 << max(bits, 0), 1 << max(-bits, 0)), out.dtype, rescale, out=out)


def _scale_below(e: Emitter, below: str, slopes: np.ndarray, bits: int) -> str:
    """below * slope with ``bits`` fraction bits; slopes are int16 with the exponent of the largest."""
    exponent = SLOPE_BITS - 1 - math.frexp(float(np.abs(slopes).max()))[1]
    codes = np.clip(np.rint(np.ldexp(slopes, exponent + 1)), -(2**15 - 1), 2**15 - 1)
    factor = e.constant(codes.astype(np.int16).reshape(_aligned(slopes, len(e.info(below).shape))), "slopes")
    return e.mul(below, factor, DType.INT16, integer_rescale(2.0 ** (bits - exponent - 1), sum_bits=48, where=e.origin))


def _aligned(slopes: np.ndarray, rank: int) -> tuple[int, ...]:
    return (1,) * (rank - slopes.ndim) + slopes.shape
