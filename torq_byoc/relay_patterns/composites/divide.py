"""Division.

bf16: multiplication by the reciprocal.  Integer: the divisor's 256 codes index two exact tables with the
high and low part of its reciprocal; numerator times both, joined with the exact output multiplier.

A divisor of zero has the largest reciprocal that the two parts hold.  Times any numerator but zero it saturates an
int32, and the unit of reciprocals is small enough for an int32 that saturates to lie beyond all codes of the result:
what is divided by zero takes the end of the codes on its side, as infinity does when it is quantized.
"""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import float_patterns, tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import integer_rescale, to_codes
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.quant_params import QuantParams

FRACTION_BITS = 22
"""Most fraction bits of a reciprocal: times 255 codes it stays within an int32."""
PART_BITS = 16
"""A reciprocal is high * 2**PART_BITS + low, both int16."""
INFINITE = (tables.INT16_MAX << PART_BITS) + tables.INT16_MAX
"""What stands for one over zero, in units of a reciprocal: the largest number that has two such parts."""


def lower(builder: GraphBuilder, x: str, y: str, out: QuantParams | None, origin: str) -> str:
    """Decompose x / y, broadcast.

    Args:
        builder: receives the nodes.
        x, y: both bf16, or both int8/uint8 with scales (x may be int16).
        out: quantization of the result; None for bf16.
        origin: the ONNX node.

    Returns:
        Name of the output tensor.  x / 0 saturates by the sign of x, and 0 / 0 is the code of zero; in bf16 a divisor
        of zero counts as 2**-127.

    Raises:
        UnsupportedOpError: an integer divisor wider than 8 bits.
        QuantizationError: scales are missing or out of reach.
    """
    e = Emitter(builder, origin)
    if out is None:
        return e.mul(x, float_patterns.reciprocal(e, y), DType.BF16)
    numerator, divisor = quantization(e, x), quantization(e, y)
    if divisor.dtype.size > 1 or numerator.dtype.size > 1:
        raise UnsupportedOpError(
            "integer division takes 8-bit operands",
            where=origin,
            why=f"types {numerator.dtype.value} / {divisor.dtype.value}; a table has 512 entries",
            remedy="quantize the operands to 8 bits or keep the operator in bf16",
        )
    quotient = numerator.scale / divisor.scale / out.scale
    fraction_bits = _fraction_bits(quotient, out)
    high, low = reciprocal_parts(divisor, fraction_bits)
    centred = e.act(x, DType.INT16, integer_rescale(bias=-numerator.zero_point))
    index = tables.exact_index(divisor.dtype.integer_range[0])
    parts = []
    for entries, unit in ((high, 1 << PART_BITS), (low, 1)):
        part = e.table(y, tables.exact_table(entries), index, DType.INT16)
        parts.append(e.mul(centred, part, DType.INT32, integer_rescale(unit, sum_bits=48)))
    rescale = to_codes(math.ldexp(quotient, -fraction_bits), out, sum_bits=48, where=origin)
    return e.sum2(parts[0], parts[1], (1, 1), out.dtype, rescale, out=out)


def reciprocal_parts(divisor: QuantParams, fraction_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """High and low parts of one over every code (less the zero point), ascending: int64[256] each."""
    low, high = divisor.dtype.integer_range
    counts = np.arange(low, high + 1) - divisor.zero_point
    with np.errstate(divide="ignore"):
        inverse = np.rint(np.minimum(np.ldexp(1.0 / counts, fraction_bits), INFINITE)).astype(np.int64)
    half = 1 << (PART_BITS - 1)
    upper = (inverse + half) >> PART_BITS
    return upper, inverse - (upper << PART_BITS)


def _fraction_bits(quotient: float, out: QuantParams) -> int:
    """As many as leave what a product with ``INFINITE`` comes to beyond all codes of the result.

    Args:
        quotient: codes of the result that one code over one code comes to.
        out: quantization of the result.
    """
    low, high = out.dtype.integer_range
    return min(FRACTION_BITS, math.floor(math.log2(INFINITE * quotient / (high - low + 1))))
