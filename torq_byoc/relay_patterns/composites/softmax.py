"""Softmax over any axis.

Integer, with d = x - max(x) <= 0 per row:

    e = table of exp(scale * d), int16 with 32767 for d = 0
    S = sum(e) (+ sum of the rounding residues of e, from a second table, when rows are long)
    y = e * (1 / (S * output scale)) with a 32-bit multiplier per row

Rows of more than ``SINGLE_TABLE_ROW`` elements need the residues: thousands of values just under half a
unit would otherwise vanish from the sum.  For 8-bit outputs the result is within one code of
dequantize -> softmax -> quantize for rows of up to 65,536 elements; 16-bit inputs, whose exponentials are
interpolated, reach 16-bit outputs within 16 codes of 2**-15.  Rows of two elements of 8 bits have a form of their own
(``softmax_pair``).

bf16: 2**((x - max) * log2 e) from one table of bf16 patterns, an fp32 sum, its reciprocal from one table.
"""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import float_table, softmax_pair, tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale
from torq_byoc.relay_patterns.composites.float_table import Range
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.composites.row_reciprocal import RowSum, lower_pairs
from torq_byoc.relay_patterns.quant_params import QuantParams

UNIT = tables.INT16_MAX
"""Table entry of exp(0)."""
SINGLE_TABLE_ROW = 64
MAX_ROW = 1 << 16
EXACT_RESIDUE_BITS = 15
FITTED_RESIDUE_BITS = 11
FLAT_BELOW = 2.0**-6
"""Piecewise tables are flat where exp is below this, so that a second table can hold the exact difference."""
EXP_RANGE = Range(-32 * math.log(2.0), 0.0, below=0.0)
"""x - max of bf16 rows; pieces of a sixteenth of an octave."""
LOWEST_EXPONENT = 24.0
"""exp(-d) counts as 0 beyond this many octaves (16-bit inputs)."""


def lower(builder: GraphBuilder, x: str, axis: int, out: QuantParams | None, origin: str) -> str:
    """Decompose softmax.

    Args:
        builder: receives the nodes.
        x: int8, uint8 or int16 with a scale, or bf16.
        axis: any axis, may be negative.
        out: int8, uint8 or int16 quantization of the result; None for bf16.
        origin: the ONNX node.

    Returns:
        Name of the output tensor.

    Raises:
        UnsupportedOpError: an integer row of more than ``MAX_ROW`` elements.
        QuantizationError: x has no scale, or the output scale is out of reach.
    """
    e = Emitter(builder, origin)
    axis %= len(e.info(x).shape)
    if out is None:
        _, powers, total = float_exponentials(e, x, axis)
        binades = sum_binades(e.info(x).shape[axis])
        return e.mul(powers, float_table.lower_binades(e, total, np.reciprocal, 0, binades), DType.BF16)
    row = e.info(x).shape[axis]
    if row == 2 and e.info(x).dtype.size == 1:
        return softmax_pair.lower(e, x, axis, out)
    if row > MAX_ROW:
        raise UnsupportedOpError(
            "softmax row too long for 32-bit sums",
            where=origin,
            why=f"{row} elements along axis {axis}, at most {MAX_ROW}",
            remedy="leave the operator to the CPU",
        )
    fine = out.dtype.size > 1
    exponentials, row_sum = integer_exponentials(e, x, axis, row > SINGLE_TABLE_ROW or fine, fine)
    pairs, shift = lower_pairs(e, row_sum, 1.0 / out.scale)
    low, high = out.dtype.integer_range
    rescale = Rescale(np.zeros(1, np.int32), None, shift, out.zero_point, low, high)
    return e.emit("scale_rows", [exponentials, pairs], out.dtype, shape=e.info(x).shape, rescale=rescale, out=out)


def integer_exponentials(e: Emitter, x: str, axis: int, need_residues: bool, need_small: bool) -> tuple[str, RowSum]:
    """exp(x - max) as int16 with ``UNIT`` for 1, and its row sums.

    ``need_residues`` adds the rounding residues to the sums; ``need_small`` asks for exponentials that are
    smooth where they are small, too.
    """
    source = quantization(e, x)
    row = e.info(x).shape[axis]
    narrow = source.dtype.size == 1
    difference = _differences(e, x, axis)
    main, rest, bits = _exact_tables(source.scale) if narrow else _fitted_tables(source.scale)
    index = tables.exact_index(-255) if narrow else _wide_index(source.scale)
    headroom = max(0, min(8, int(math.log2((2**31 - 1) / (row * UNIT)))))
    exponentials = e.table(difference, main, index, DType.INT16)
    total = e.reduce(exponentials, "sum", axis, DType.INT32, integer_rescale(1 << headroom))
    if need_residues or not narrow:
        residues = e.table(difference, rest, index, DType.INT16)
        small = e.reduce(residues, "sum", axis, DType.INT32, integer_rescale(2.0 ** (headroom - bits)))
        total = e.sum2(total, small, (1, 1), DType.INT32)
    if need_small and not narrow:
        exponentials = e.table(difference, tables.fit_table(_wide_exponentials(source.scale)).table, index, DType.INT16)
    return exponentials, RowSum(total, UNIT << headroom, headroom)


def _differences(e: Emitter, x: str, axis: int) -> str:
    """x - max: as a bias of the row where lanes share a row, else by a subtraction."""
    info = e.info(x)
    wide = DType.INT16 if info.dtype.size == 1 else DType.INT32
    maximum = e.reduce(x, "max", axis, info.dtype)
    if math.prod(info.shape[axis + 1 :]) > 1:
        return e.sum2(x, e.broadcast(maximum, info.shape), (1, -1), wide)
    negated = e.pairs(maximum, (-1, 0), (0, 1))
    return e.emit("scale_rows", [x, negated], wide, shape=info.shape, rescale=Rescale(np.zeros(1, np.int32)))


def float_exponentials(e: Emitter, x: str, axis: int) -> tuple[str, str, str]:
    """Row maxima (bf16), exp(x - max) (bf16), and its row sums (fp32)."""
    span = -EXP_RANGE.low
    constant, fixed = float_table.magic(span)
    maximum = e.reduce(x, "max", axis, DType.BF16)
    repeated = e.broadcast(maximum, e.info(x).shape)
    shifted = e.sum2(x, repeated, (1.0, -1.0), DType.FP32, float_rescale(constant))
    powers = float_table.lower_fixed(e, e.bitcast(shifted, DType.INT32), fixed, np.exp, EXP_RANGE)
    return maximum, powers, e.reduce(powers, "sum", axis, DType.FP32)


def sum_binades(row: int) -> int:
    """A power of two of binades that covers sums of ``row`` numbers up to 1, the largest of them 1."""
    return 1 << max(0, math.ceil(math.log2(math.log2(row) + 1.0)))


def _exact_tables(scale: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Entries for d = -255..0, the residues of their rounding, and the residues' fraction bits."""
    real = np.exp(np.arange(-255, 1) * scale) * UNIT
    whole = np.rint(real)
    rest = np.rint(np.ldexp(real - whole, EXACT_RESIDUE_BITS))
    return tables.exact_table(whole), tables.exact_table(rest), EXACT_RESIDUE_BITS


def _wide_range(scale: float) -> int:
    """Largest -d, in codes and even, that the piecewise tables resolve."""
    return min(tables.POSITIONS, 2 * math.ceil(LOWEST_EXPONENT * math.log(2.0) / scale / 2))


def _wide_index(scale: float) -> Rescale:
    codes = _wide_range(scale)
    return integer_rescale((tables.POSITIONS - 1) / codes, bias=codes // 2)


def _wide_exponentials(scale: float) -> np.ndarray:
    """UNIT * exp at every position of ``_wide_index``."""
    codes = _wide_range(scale)
    d = tables.positions() * (codes / (tables.POSITIONS - 1)) - codes // 2
    return np.exp(np.minimum(d, 0.0) * scale) * UNIT


def _fitted_tables(scale: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Piecewise forms of ``_exact_tables`` for 16-bit inputs."""
    real = _wide_exponentials(scale)
    flat = real[:, -1:] < FLAT_BELOW * UNIT
    middle = np.rint((real[:, :1] + real[:, -1:]) / 2)
    main = tables.fit_table(np.where(flat, middle, real)).table
    rest = np.where(flat, real - tables.table_values(main), 0.0)
    return main, tables.fit_table(np.ldexp(rest, FITTED_RESIDUE_BITS)).table, FITTED_RESIDUE_BITS
