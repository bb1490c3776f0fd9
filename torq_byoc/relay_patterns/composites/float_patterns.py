"""bf16 functions that are almost linear on bit patterns: roots, reciprocals, logarithm, exponential, power.

A pattern is exponent * 128 + mantissa.  These functions map the exponent linearly, so what remains is a
correction that depends on the low bits alone (the mantissa, and for roots the exponent's parity).  The low
bits are cut out by a left shift that wraps, an exact table turns them into the correction, and one sum
puts the result together.  Roots and reciprocals come out correctly rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale
from torq_byoc.relay_patterns.composites.float_bits import (
    BINADE,
    EXPONENT_BIAS,
    INFINITY,
    bf16_of_pattern,
    bf16_pattern,
    split_bf16,
)
from torq_byoc.relay_patterns.composites.float_table import FP32_MANTISSA, FixedPoint, magic

LOG_FRACTION = 16
"""Fraction bits of a base-2 logarithm in int32."""
EXP_FRACTION = 14
"""Fraction bits of a base-2 exponent in int32."""
EXP_LIMIT = 130.0
"""Base-2 exponents past this are certain to under- or overflow."""
EXP_RANGE = 2.0 ** (FP32_MANTISSA - 1 - EXP_FRACTION)
"""Fixed point of EXP_FRACTION bits holds magnitudes up to this."""
MANTISSA_BITS = 7
ROOT_BITS = 8
ONE = EXPONENT_BIAS * BINADE
"""The pattern of 1.0."""


def rsqrt(e: Emitter, x: str) -> str:
    """1 / sqrt(x) for positive bf16, correctly rounded; 0 gives 2**63.5, the largest result."""
    return _root(e, x, lambda v: 1.0 / np.sqrt(v), slope=-1)


def sqrt(e: Emitter, x: str) -> str:
    """sqrt(x), correctly rounded; zero and negative numbers give 0."""
    smallest = int(_root_patterns(np.array(0), lambda v: np.sqrt(v)))
    root = _root(e, x, lambda v: np.sqrt(v), slope=1, lowest=smallest)
    return e.act(root, DType.BF16, float_rescale(-float(bf16_of_pattern(np.array(smallest)))))


def reciprocal_positive(e: Emitter, x: str) -> str:
    """1 / x for positive bf16, correctly rounded; 0 gives 2**127."""
    bits = e.bitcast(x, DType.INT16)
    correction = _correction(e, bits, MANTISSA_BITS, _reciprocal_entries())
    total = e.sum2(bits, correction, (-1, 1), DType.INT16, integer_rescale(bias=2 * ONE, clip=(0, INFINITY)))
    return e.bitcast(total, DType.BF16)


def reciprocal(e: Emitter, x: str) -> str:
    """1 / x for bf16 of any sign, correctly rounded; +-0 gives +-2**127.

    The pattern of a negative result differs by 2**16, which the 32-bit wrap of a left shift by 16 removes.
    Magnitudes are bounded by 2**126, whose reciprocal is the smallest normal number.
    """
    bits = e.bitcast(e.act(x, DType.BF16, float_rescale(clip=(-(2.0**126), 2.0**126))), DType.INT16)
    correction = _correction(e, bits, MANTISSA_BITS, _reciprocal_entries())
    total = e.sum2(bits, correction, (-1, 1), DType.INT32, integer_rescale(bias=2 * ONE))
    wide = e.bitcast(e.shift(total, 16, "LSL"), DType.FP32)
    return e.act(wide, DType.BF16)


def log(e: Emitter, x: str) -> str:
    """Natural logarithm of positive bf16; 0 gives -88 (the logarithm of 2**-127)."""
    whole = e.act(_log2(e, x), DType.BF16, integer_rescale(), mode="I2F")
    return e.sum2(whole, whole, split_bf16(math.ldexp(math.log(2.0), -LOG_FRACTION)), DType.BF16)


def exp(e: Emitter, x: str) -> str:
    """exp(x) over the whole range of bf16: 0 below 2**-126, infinity above 2**128."""
    constant, fixed = magic(EXP_RANGE)
    clip = (constant - EXP_LIMIT, constant + EXP_LIMIT)
    scaled = e.sum2(x, x, split_bf16(math.log2(math.e)), DType.FP32, float_rescale(constant, clip=clip))
    return _exp2(e, e.bitcast(scaled, DType.INT32), fixed)


def power(e: Emitter, x: str, exponent: float) -> str:
    """x ** exponent for positive bf16 x and any constant exponent; 0 counts as 2**-127."""
    logarithm = _log2(e, x)
    limit = int(EXP_LIMIT) << EXP_FRACTION
    factor = math.ldexp(exponent, EXP_FRACTION - LOG_FRACTION)
    scaled = e.act(logarithm, DType.INT32, integer_rescale(factor, clip=(-limit, limit), where=e.origin))
    return _exp2(e, scaled, FixedPoint(0, EXP_FRACTION))


def _exp2(e: Emitter, x: str, fixed: FixedPoint) -> str:
    """2**x for int32 fixed point: exponent and mantissa together are 128 * x plus a correction of the fraction."""
    fraction_bits = fixed.fraction_bits
    fraction = tables.positions() / tables.POSITIONS
    below_zero = fraction < 0
    mantissa = np.exp2(fraction + below_zero) - 1.0 - below_zero
    targets = np.ldexp(BINADE * (mantissa - fraction), MANTISSA_BITS)
    top = e.shift(x, 32 - fraction_bits, "LSL")
    correction = e.table(top, tables.fit_table(targets).table, integer_rescale(2.0**-16), DType.INT32)
    bias = (ONE << MANTISSA_BITS) - fixed.offset
    rescale = integer_rescale(2.0**-MANTISSA_BITS, bias=bias, clip=(0, INFINITY))
    return e.bitcast(e.sum2(x, correction, (1, 1), DType.INT16, rescale), DType.BF16)


def _log2(e: Emitter, x: str) -> str:
    """log2(x) of positive bf16 as int32 with LOG_FRACTION fraction bits."""
    mantissa = np.arange(-(BINADE // 2), BINADE // 2)
    wrapped = mantissa < 0
    excess = np.log2(1.0 + mantissa / BINADE + wrapped) - wrapped - mantissa / BINADE
    bits = e.bitcast(x, DType.INT16)
    correction = _correction(e, bits, MANTISSA_BITS, np.rint(np.ldexp(excess, LOG_FRACTION)))
    unit = 1 << (LOG_FRACTION - MANTISSA_BITS)
    return e.sum2(bits, correction, (unit, 1), DType.INT32, integer_rescale(bias=-(ONE * unit)))


def _root(e: Emitter, x: str, function: Callable[[np.ndarray], np.ndarray], slope: int, lowest: int = 0) -> str:
    """A function whose pattern is slope * pattern / 2 plus a correction of the low 8 bits."""
    low = np.arange(-(1 << (ROOT_BITS - 1)), 1 << (ROOT_BITS - 1))
    offset = int(_root_patterns(np.array(0), function))
    results = _root_patterns(ONE + BINADE + low, function)
    entries = 2 * (results - offset) - slope * (ONE + BINADE + low)
    middle = int(np.rint(entries.mean()))
    bits = e.bitcast(x, DType.INT16)
    correction = _correction(e, bits, ROOT_BITS, entries - middle)
    rescale = integer_rescale(0.5, bias=2 * offset + middle, clip=(lowest, INFINITY))
    return e.bitcast(e.sum2(bits, correction, (slope, 1), DType.INT16, rescale), DType.BF16)


def _root_patterns(patterns: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The rounded patterns of function(values of patterns); pattern 0 counts as 2**-127."""
    exponent, mantissa = np.divmod(patterns, BINADE)
    values = np.ldexp(1.0 + mantissa / BINADE, exponent - EXPONENT_BIAS)
    return np.rint(bf16_pattern(function(values))).astype(np.int64)


def _reciprocal_entries() -> np.ndarray:
    """Correction of 2 * ONE - pattern, for the mantissa as a signed 7-bit number."""
    mantissa = np.arange(-(BINADE // 2), BINADE // 2)
    values = 1.0 + (mantissa % BINADE) / BINADE
    return np.rint(bf16_pattern(1.0 / values)) - (ONE - mantissa % BINADE)


def _correction(e: Emitter, bits: str, kept: int, entries: np.ndarray) -> str:
    """Table entry of the low ``kept`` bits of an int16, read as a signed number from -2**(kept-1) up."""
    top = e.shift(bits, 32 - kept, "LSL")
    lowest = -(1 << (kept - 1))
    padded = np.concatenate([np.full(tables.SEGMENTS // 2 + lowest, entries[0]), entries])
    return e.table(top, tables.exact_table(padded), integer_rescale(2.0 ** -(32 - kept - 7)), DType.INT16)
