"""Division.

bf16: multiplication by the reciprocal.  Integer: the divisor's 256 codes index two exact tables with the
high and low part of its reciprocal; numerator times both, joined with the exact output multiplier.
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

PART_BITS = 7
"""1/n is high + low * 2**-PART_BITS, in units of 2**-15."""


def lower(builder: GraphBuilder, x: str, y: str, out: QuantParams | None, origin: str) -> str:
    """Decompose x / y, broadcast.

    Args:
        builder: receives the nodes.
        x, y: both bf16, or both int8/uint8 with scales (x may be int16).
        out: quantization of the result; None for bf16.
        origin: the ONNX node.

    Returns:
        Name of the output tensor.  A zero divisor counts as one code of y (integer) or 2**-127 (bf16).

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
    low, high = divisor.dtype.integer_range
    counts = np.arange(low, high + 1) - divisor.zero_point
    inverse = np.ldexp(1.0 / np.where(counts == 0, 1, counts), 15)
    whole = np.clip(np.rint(inverse), -tables.INT16_MAX, tables.INT16_MAX)
    rest = np.rint(np.ldexp(inverse - whole, PART_BITS))
    centred = e.act(x, DType.INT16, integer_rescale(bias=-numerator.zero_point))
    index = tables.exact_index(low)
    parts = []
    for entries, weight in ((whole, 1 << PART_BITS), (rest, 1)):
        part = e.table(y, tables.exact_table(entries), index, DType.INT16)
        parts.append(e.mul(centred, part, DType.INT32, integer_rescale(weight, sum_bits=48)))
    factor = math.ldexp(numerator.scale / divisor.scale / out.scale, -15 - PART_BITS)
    rescale = to_codes(factor, out, where=origin)
    return e.sum2(parts[0], parts[1], (1, 1), out.dtype, rescale, out=out)
