"""Element-wise functions of quantized tensors, as one table look-up a value.

8-bit inputs have 256 codes, fewer than the table has entries: every code has an entry of its own that
holds the correctly rounded output code, so the result equals dequantize -> function -> quantize exactly.

16-bit inputs use the table as 512 straight pieces over the codes at which the result changes: where it is constant
on either side (saturated, or outside the function's domain), the rest gets the pieces.  An 8-bit output then goes
through 16-bit fixed point with 7 more fraction bits: the piece's error stays far below one code, and the
kinks where the output saturates lie outside the fixed-point range that matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torq_byoc.errors import QuantizationError
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import integer_rescale
from torq_byoc.relay_patterns.quant_params import QuantParams

EXTRA_BITS = 7
"""Fraction bits of the 16-bit intermediate below an 8-bit code; one bit is left for values past the code range."""

MAX_ERROR = {1: 1, 2: 256}
"""Codes by which a table of a 16-bit input may miss the function, by bytes of the result."""

RealFunction = Callable[[np.ndarray], np.ndarray]


def lower(e: Emitter, x: str, function: RealFunction, out: QuantParams) -> str:
    """One table (and a narrowing pass for 16-bit in, 8-bit out) that applies ``function`` to x.

    Poles saturate; codes outside the function's domain (NaN) give the code of zero.

    Raises:
        QuantizationError: the types are not int8, uint8 or int16, or x has no scale.
    """
    source = quantization(e, x)
    if out.dtype not in (DType.INT8, DType.UINT8, DType.INT16):
        raise _unsupported(e, "output", out.dtype)
    if source.dtype in (DType.INT8, DType.UINT8):
        return _exact(e, x, function, source, out)
    if source.dtype is DType.INT16:
        return _interpolated(e, x, function, source, out)
    raise _unsupported(e, "input", source.dtype)


def quantization(e: Emitter, x: str) -> QuantParams:
    """The quantization of a tensor.

    Raises:
        QuantizationError: it has none.
    """
    info = e.info(x)
    if info.scale is None:
        raise QuantizationError(
            f"tensor '{x}' has no scale",
            where=e.origin,
            why=f"its type is {info.dtype.value}; an integer operand needs a quantization",
            remedy="put a QuantizeLinear/DequantizeLinear pair on it",
        )
    return QuantParams(info.scale, info.zero_point, info.dtype)


@dataclass(frozen=True, eq=False)
class Pieces:
    """A function of 16-bit codes in straight pieces.

    Attributes:
        index: maps a code to its position in the table.
        fitted: the table; its error is in output codes / 2**EXTRA_BITS for 8-bit outputs.
    """

    index: Rescale
    fitted: tables.FittedTable


def pieces(function: RealFunction, source: QuantParams, out: QuantParams) -> Pieces:
    """The piecewise table for int16 codes."""
    codes = np.arange(tables.INT16_MIN, tables.INT16_MAX + 1)
    real = _finite(function(source.dequantize(codes))) / out.scale + out.zero_point
    if out.dtype is not DType.INT16:
        real = (real - _middle(out.dtype)) * (1 << EXTRA_BITS)
    targets = np.clip(real, 2 * tables.INT16_MIN, 2 * tables.INT16_MAX)
    factor, first = _stretch(np.rint(np.clip(targets, tables.INT16_MIN, tables.INT16_MAX)))
    places = np.clip(np.arange(tables.POSITIONS // factor) + first, 0, tables.POSITIONS - 1)
    index = integer_rescale(factor, bias=(tables.INT16_MIN // factor) - (tables.INT16_MIN + first))
    return Pieces(index, tables.fit_table(targets[places].reshape(tables.SEGMENTS, -1)))


def _stretch(results: np.ndarray) -> tuple[int, int]:
    """Positions a code, a power of two, and the place in ``results`` of the first position; those before saturate.

    Args:
        results: of all codes, ascending.  Where they are alike on either side a piece of them is enough.
    """
    changes = np.flatnonzero(np.diff(results))
    first, last = (int(changes[0]), int(changes[-1]) + 1) if changes.size else (0, 0)
    factor = 1
    while factor < tables.SEGMENT and (last - first + 1) * factor <= tables.POSITIONS // 2 - tables.SEGMENT:
        factor *= 2
    return factor, first - tables.SEGMENT // factor if factor > 1 else 0


def at_every_code(function: RealFunction, source: QuantParams) -> np.ndarray:
    """A function at every code of an 8-bit tensor, ascending; poles are large numbers, NaN is 0."""
    low, high = source.dtype.integer_range
    return _finite(function(source.dequantize(np.arange(low, high + 1))))


def _exact(e: Emitter, x: str, function: RealFunction, source: QuantParams, out: QuantParams) -> str:
    table = tables.exact_table(out.quantize(at_every_code(function, source)))
    return e.table(x, table, tables.exact_index(source.dtype.integer_range[0]), out.dtype, out=out)


def _interpolated(e: Emitter, x: str, function: RealFunction, source: QuantParams, out: QuantParams) -> str:
    found = pieces(function, source, out)
    error = found.fitted.max_error / (1 if out.dtype is DType.INT16 else 1 << EXTRA_BITS)
    if error > MAX_ERROR[out.dtype.size]:
        raise QuantizationError(
            "the function is too steep for a table of 16-bit codes",
            where=e.origin,
            why=f"{tables.SEGMENTS} straight pieces are up to {error:.0f} codes off; at most "
            f"{MAX_ERROR[out.dtype.size]} are accepted",
            remedy="quantize the function's input with a smaller scale or with 8 bits, or leave it to the CPU",
        )
    table = found.fitted.table
    if out.dtype is DType.INT16:
        return e.table(x, table, found.index, out.dtype, out=out)
    fine = e.table(x, table, found.index, DType.INT16)
    narrow = integer_rescale(2.0**-EXTRA_BITS, zero_point=_middle(out.dtype), rounding=Rounding.NTE)
    return e.act(fine, out.dtype, narrow, out=out)


def _middle(dtype: DType) -> int:
    low, high = dtype.integer_range
    return (low + high + 1) // 2


def _finite(real: np.ndarray) -> np.ndarray:
    return np.nan_to_num(real, nan=0.0, posinf=1e300, neginf=-1e300)


def _unsupported(e: Emitter, side: str, dtype: DType) -> QuantizationError:
    return QuantizationError(
        f"{side} type {dtype.value} has no table form",
        where=e.origin,
        why="tables map int8, uint8 or int16 codes to int8, uint8 or int16 codes",
        remedy="requantize the tensor to one of these types",
    )
