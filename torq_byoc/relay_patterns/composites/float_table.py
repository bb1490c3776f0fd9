"""bf16 functions through one table: fixed-point position in, bf16 bit pattern out.

Position: adding the fp32 constant 1.5 * 2**(23-q) to x leaves round(x * 2**q) in the low bits of the sum's
encoding.  One float ACT pass does that for bf16 x exactly; read as int32, the sum is an integer that the
table's own rescale maps to a position, with any range and any factor.

Value: the entries are bf16 patterns, so a result keeps its relative accuracy however small it is, and no
conversion or scaling follows.  Both readings are bitcasts: a function costs one ACT pass and one table pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale
from torq_byoc.relay_patterns.composites.float_bits import (
    BINADE,
    EXPONENT_BIAS,
    FP32_BINADE,
    INFINITY,
    bf16_pattern,
    fp32_pattern,
)

RealFunction = Callable[[np.ndarray], np.ndarray]

FP32_MANTISSA = 23


@dataclass(frozen=True)
class FixedPoint:
    """An int32 encoding of fixed-point numbers: integer = offset + round(x * 2**fraction_bits)."""

    offset: int
    fraction_bits: int


@dataclass(frozen=True)
class Range:
    """The interval [low, high) that the 65,536 table positions cover evenly; outside, the end values hold.

    ``below``, when given, replaces the whole first piece, and with it everything under ``low``.
    """

    low: float
    high: float
    below: float | None = None

    @property
    def limit(self) -> float:
        """The largest magnitude in the range."""
        return max(abs(self.low), abs(self.high))

    @property
    def step(self) -> float:
        """Distance of neighbouring positions."""
        return (self.high - self.low) / tables.POSITIONS

    def points(self) -> np.ndarray:
        """x at every position: float64[512, 128]."""
        return (self.low + self.high) / 2 + tables.positions() * self.step


def magic(limit: float) -> tuple[float, FixedPoint]:
    """The fp32 constant whose addition turns |x| <= limit into fixed point, and the encoding that results."""
    fraction_bits = FP32_MANTISSA - 1 - math.ceil(math.log2(limit))
    constant = 1.5 * 2.0 ** (FP32_MANTISSA - fraction_bits)
    return constant, FixedPoint(fp32_pattern(constant), fraction_bits)


def to_fixed(e: Emitter, x: str, limit: float) -> tuple[str, FixedPoint]:
    """Fixed point of bf16 x; values past ``limit`` stay ordered and past it, infinities included."""
    constant, fixed = magic(limit)
    shifted = e.act(x, DType.FP32, float_rescale(constant))
    return e.bitcast(shifted, DType.INT32), fixed


def position_of(fixed: FixedPoint, span: Range) -> Rescale:
    """Maps fixed point to the table positions of a range."""
    unit = 2.0**fixed.fraction_bits
    middle = round((span.low + span.high) / 2 * unit)
    return integer_rescale(tables.POSITIONS / ((span.high - span.low) * unit), bias=-(fixed.offset + middle))


@lru_cache(maxsize=64)
def pattern_table(function: RealFunction, span: Range) -> tables.FittedTable:
    """The table of bf16 patterns of a function over a range; the error is in bf16 units in the last place."""
    targets = bf16_pattern(function(span.points()))
    if span.below is not None:
        targets[0] = bf16_pattern(np.array(span.below))
    return tables.fit_table(np.clip(targets, -(1 << 15), INFINITY))


def lower(e: Emitter, x: str, function: RealFunction, span: Range) -> str:
    """A bf16 function that keeps its sign inside every table piece, as bf16."""
    integer, fixed = to_fixed(e, x, span.limit)
    return lower_fixed(e, integer, fixed, function, span)


def lower_fixed(e: Emitter, x: str, fixed: FixedPoint, function: RealFunction, span: Range) -> str:
    """The same for x that is already in fixed point."""
    return look_up(e, x, fixed, pattern_table(function, span).table, span)


def look_up(e: Emitter, x: str, fixed: FixedPoint, table: np.ndarray, span: Range) -> str:
    """The bf16 entry of fixed-point x in a table of patterns over a range."""
    return e.bitcast(e.table(x, table, position_of(fixed, span), DType.INT16), DType.BF16)


def lower_binades(e: Emitter, x: str, function: RealFunction, lowest: int, binades: int) -> str:
    """A function of positive bf16 or fp32 x in [2**lowest, 2**(lowest + binades)), as bf16, in one table pass.

    Pieces divide every binade evenly, so the accuracy is relative in x.  ``binades`` is a power of two;
    outside the interval the end values hold.
    """
    fp32 = e.info(x).dtype is DType.FP32
    unit = FP32_BINADE if fp32 else BINADE
    middle = (lowest + EXPONENT_BIAS) * unit + binades * unit // 2
    index = integer_rescale(tables.POSITIONS / binades / unit, bias=-middle)
    logarithm = (tables.positions() + tables.POSITIONS // 2) * (binades / tables.POSITIONS) + lowest
    exponent = np.floor(logarithm)
    points = np.ldexp(1.0 + logarithm - exponent, exponent.astype(np.int64))
    targets = np.clip(bf16_pattern(function(points)), -(1 << 15), INFINITY)
    bits = e.bitcast(x, DType.INT32 if fp32 else DType.INT16)
    return e.bitcast(e.table(bits, tables.fit_table(targets).table, index, DType.INT16), DType.BF16)
