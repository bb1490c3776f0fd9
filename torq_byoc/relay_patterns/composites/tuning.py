"""Tables of bf16 gates, refined against every bf16 number that can reach them.

x * gate(x) rounds twice: the gate to bf16, then the product.  A piece of the table covers few bf16 numbers
where |x| is large, so nudging its ends by a pattern or two finds gates whose products round well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.numerics import rescale, round_bf16, saturate, table_lookup
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.float_bits import BINADE, EXPONENT_BIAS, bf16_pattern

LARGEST_EXPONENT = 20
NUDGES = tuple(itertools.product((0, -1, 1, -2, 2), repeat=2))
"""Changes of a piece's first and last pattern that are tried."""


def tune_gate(
    table: np.ndarray,
    positions_of: Callable[[np.ndarray], np.ndarray],
    function: Callable[[np.ndarray], np.ndarray],
    clip: tuple[float, float],
    step: float,
) -> np.ndarray:
    """The table with every piece nudged to the least error of bf16(clip(x * gate)), in units in the last place.

    Args:
        table: int16[512, 2] of bf16 patterns of the gate.
        positions_of: table positions of bf16 numbers, as the machine computes them.
        function: the exact clip(x * gate(x)) in float64.
        clip: bounds of the product.
        step: distance of positions in x; smaller numbers share position 0 with those of the other sign and
            are left out.
    """
    x = _numbers(step)
    position = positions_of(x)
    exact = function(x.astype(np.float64))
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126))) - 7)
    piece = (position >> 7) + tables.SEGMENTS // 2
    best = table.copy()
    best_error = np.full(tables.SEGMENTS, np.inf)
    for first, last in NUDGES:
        nudged = table.astype(np.int64) + np.array([first, last - first])
        candidate = np.clip(nudged, tables.INT16_MIN, tables.INT16_MAX).astype(np.int16)
        pattern = saturate(table_lookup(position, candidate), DType.INT16)
        product = x.astype(np.float32) * pattern.view(ml_dtypes.bfloat16).astype(np.float32)
        value = round_bf16(np.clip(product, *clip)).astype(np.float64)
        error = np.zeros(tables.SEGMENTS)
        np.maximum.at(error, piece, np.nan_to_num(np.abs(value - exact) / unit, nan=np.inf))
        better = error < best_error
        best[better], best_error[better] = candidate[better], error[better]
    return best


def fixed_positions(constant: float, index: Rescale) -> Callable[[np.ndarray], np.ndarray]:
    """Positions that ``float_table`` looks up for bf16 numbers: the fp32 sum with ``constant``, read as an integer."""

    def positions_of(x: np.ndarray) -> np.ndarray:
        integer = (x.astype(np.float32) + np.float32(constant)).view(np.int32)
        found = rescale(integer, index.bias, index.scale, index.shift, index.rounding, out=DType.INT16)
        return found.astype(np.int64)

    return positions_of


def _numbers(smallest: float) -> np.ndarray:
    """bf16 numbers of either sign, of magnitude ``smallest`` to 2**LARGEST_EXPONENT."""
    lowest = math.ceil(bf16_pattern(np.array(smallest)))
    patterns = np.arange(lowest, (EXPONENT_BIAS + LARGEST_EXPONENT) * BINADE).astype(np.uint16)
    return np.concatenate([patterns, patterns | 0x8000]).astype(np.uint16).view(ml_dtypes.bfloat16)
