"""Reciprocals of positive int32 row values as the (bias, scale) pairs of ``scale_rows``.

The row value S is shifted left until it lies in [2**30, 2**31); a table of 512 pieces gives 2**30 / S there
to 17 bits; the per-row multiplier is that value shifted back right.  All steps run on row values only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import integer_rescale

NORMAL_BIT = 30
VALUE_BITS = 17
"""The table holds (1/m - 3/4) * 2**17 for m in [1, 2): the whole int16 range."""


@dataclass(frozen=True)
class RowSum:
    """Positive int32 row values S, in units of 2**-fraction_bits of what is divided by them.

    ``smallest`` bounds S from below (within a few units); it sets the multiplier's range.
    """

    tensor: str
    smallest: int
    fraction_bits: int


def reciprocal_table() -> tables.FittedTable:
    """1/m for m = 1 + (v + 2**15) / 2**16, offset and scaled to int16; the error is in units of 2**-17."""
    m = 1.5 + tables.positions() / tables.POSITIONS
    return tables.fit_table(np.ldexp(1.0 / m - 0.75, VALUE_BITS))


def lower_pairs(e: Emitter, total: RowSum, factor: float) -> tuple[str, int]:
    """Pairs and shift with which ``scale_rows`` computes e * factor * 2**fraction_bits / S.

    Returns:
        Name of the int32 tensor (row shape + (2,)), and the shift.
    """
    normal = e.act(
        total.tensor, DType.INT32, integer_rescale(zero_point=-(31 - NORMAL_BIT), clip=(0, NORMAL_BIT)), mode="CLZ"
    )
    mantissa = e.shift(total.tensor, e.pairs(normal), "LSL")
    index = integer_rescale(2.0 ** -(NORMAL_BIT - 16), bias=-(3 << (NORMAL_BIT - 1)))
    inverse = e.table(mantissa, reciprocal_table().table, index, DType.INT16)
    most = NORMAL_BIT + 1 - total.smallest.bit_length()
    gain = factor * 2.0 ** (total.fraction_bits - NORMAL_BIT + most)
    shift = NORMAL_BIT - math.ceil(math.log2(gain))
    top = integer_rescale(math.ldexp(gain, shift - VALUE_BITS), bias=3 << (VALUE_BITS - 2), where=e.origin)
    widest = e.act(inverse, DType.INT32, top)
    amounts = e.act(normal, DType.INT32, integer_rescale(-1, zero_point=most, clip=(0, 31)))
    return e.pairs(e.shift(widest, e.pairs(amounts), "ASR")), shift
