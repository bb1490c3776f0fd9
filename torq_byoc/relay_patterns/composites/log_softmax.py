"""Log-softmax in bf16: x - (max + log(sum of exp(x - max))), the bracket as an fp32 bias of its row."""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import integer_rescale
from torq_byoc.relay_patterns.composites.float_bits import EXPONENT_BIAS, FP32_BINADE
from torq_byoc.relay_patterns.composites.softmax import float_exponentials, sum_binades


def lower(builder: GraphBuilder, x: str, axis: int, origin: str) -> str:
    """Decompose log-softmax of bf16 x over any axis.

    Args:
        builder: receives the nodes.
        x: bf16.
        axis: may be negative.
        origin: the ONNX node.

    Returns:
        Name of the bf16 output.
    """
    e = Emitter(builder, origin)
    axis %= len(e.info(x).shape)
    maximum, _, total = float_exponentials(e, x, axis)
    logarithm = _logarithm(e, total, sum_binades(e.info(x).shape[axis]))
    offset = e.sum2(maximum, logarithm, (-1.0, -1.0), DType.FP32)
    entries = e.reshape(offset, (*e.info(offset).shape, 1))
    return e.emit("scale_rows", [x, entries], DType.BF16, shape=e.info(x).shape)


def _logarithm(e: Emitter, x: str, binades: int) -> str:
    """log(x) of fp32 x in [1, 2**binades) as bf16, through int16 fixed point."""
    octaves = (tables.positions() + tables.POSITIONS // 2) * (binades / tables.POSITIONS)
    exponent = np.floor(octaves)
    values = exponent * math.log(2.0) + np.log1p(octaves - exponent)
    fraction_bits = 15 - math.ceil(math.log2(binades * math.log(2.0)))
    middle = EXPONENT_BIAS * FP32_BINADE + binades * FP32_BINADE // 2
    index = integer_rescale(tables.POSITIONS / binades / FP32_BINADE, bias=-middle)
    table = tables.fit_table(np.ldexp(values, fraction_bits)).table
    fixed = e.table(e.bitcast(x, DType.INT32), table, index, DType.INT16)
    whole = e.act(fixed, DType.BF16, integer_rescale(), mode="I2F")
    factor = np.full((1,) * len(e.info(x).shape), 2.0**-fraction_bits, DType.BF16.numpy)
    return e.mul(whole, e.constant(factor, "unit"), DType.BF16)
