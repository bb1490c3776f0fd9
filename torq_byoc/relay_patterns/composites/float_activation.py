"""bf16 activations: one recipe a function, each a handful of passes around at most one table."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import float_patterns, float_table, functions, gates, tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale
from torq_byoc.relay_patterns.composites.float_bits import split_bf16, to_bf16
from torq_byoc.relay_patterns.composites.float_table import Range

BF16 = DType.BF16
TURN_BITS = 16
"""Fraction bits of an angle in turns."""
SINE_BITS = 15
"""Fraction bits of a sine in int16."""

SIGMOID_RANGE = Range(*gates.LOGISTIC_RANGE)


def affine(
    e: Emitter,
    x: str,
    factor: float,
    bias: float = 0.0,
    clip: tuple[float, float] = (-math.inf, math.inf),
    dtype: DType = BF16,
) -> str:
    """clip(x * factor + bias) in one pass; a factor that is no bf16 number is applied as the sum of two."""
    rescale = float_rescale(bias, clip=clip)
    high, low = split_bf16(factor)
    if low:
        return e.sum2(x, x, (high, low), dtype, rescale)
    return e.mul(x, scalar(e, x, high), dtype, rescale)


def scalar(e: Emitter, x: str, value: float) -> str:
    """A bf16 constant that broadcasts against x."""
    shape = (1,) * len(e.info(x).shape)
    return e.constant(np.full(shape, value, BF16.numpy), "factor")


def gated(e: Emitter, x: str, name: str, **attributes: float) -> str:
    """x * gate(x): fixed point, table, product (see ``gates``).

    Raises:
        UnsupportedOpError: an attribute that must be positive is not.
    """
    for attribute, value in attributes.items():
        if value <= 0:
            raise UnsupportedOpError(
                f"{name} with {attribute} {value:g} has no bf16 recipe",
                where=e.origin,
                why=f"{attribute} must be positive",
                remedy="leave the operator to the CPU",
            )
    gate, table = gates.gate_table(name, tuple(sorted(attributes.items())))
    integer, fixed = float_table.to_fixed(e, x, gate.span.limit)
    return e.mul(x, float_table.look_up(e, integer, fixed, table, gate.span), BF16, float_rescale(clip=gate.clip))


def hardsigmoid(e: Emitter, x: str, alpha: float = 0.2, beta: float = 0.5) -> str:
    """clip(alpha * x + beta, 0, 1) in one pass."""
    return affine(e, x, alpha, beta, (0.0, 1.0))


def _gated(name: str, e: Emitter, x: str, **attributes: float) -> str:
    return gated(e, x, name, **attributes)


def softplus(e: Emitter, x: str) -> str:
    """max(x, table): the table ends where softplus(x) rounds to x."""
    return e.maximum(x, float_table.lower(e, x, functions.softplus, SIGMOID_RANGE))


def softsign(e: Emitter, x: str) -> str:
    """x / (1 + |x|), for |x| below 2**126."""
    denominator = e.act(e.act(x, BF16, mode="ABS"), BF16, float_rescale(1.0))
    return e.mul(x, float_patterns.reciprocal_positive(e, denominator), BF16)


def leaky_relu(e: Emitter, x: str, alpha: float = 0.01) -> str:
    """x above zero, alpha * x below."""
    scaled = affine(e, x, alpha)
    return e.maximum(x, scaled) if alpha <= 1 else e.minimum(x, scaled)


def clip(e: Emitter, x: str, low: float = -math.inf, high: float = math.inf) -> str:
    """x between two bounds, which are rounded to bf16."""
    return e.act(x, BF16, float_rescale(clip=(to_bf16(low), to_bf16(high))))


def power(e: Emitter, x: str, exponent: float = 2.0) -> str:
    """Small whole powers by multiplication, others through the logarithm of |x|, those that are not whole for x > 0."""
    if exponent in (1.0, 2.0, 3.0, 4.0):
        square = e.mul(x, x, BF16) if exponent > 1 else x
        return square if exponent in (1.0, 2.0) else e.mul(square, x if exponent == 3.0 else square, BF16)
    if exponent == -1.0:
        return float_patterns.reciprocal(e, x)
    if exponent == 0.5:
        return float_patterns.sqrt(e, x)
    if exponent == -0.5:
        return float_patterns.rsqrt(e, x)
    if exponent != int(exponent):
        return float_patterns.power(e, x, exponent)
    magnitude = float_patterns.power(e, e.act(x, BF16, mode="ABS"), exponent)
    return magnitude if int(exponent) % 2 == 0 else e.mul(magnitude, _sign(e, x, zero=1.0), BF16)


def sine(e: Emitter, x: str, phase: float = 0.0) -> str:
    """sin(x + phase turns): the angle in turns keeps only its fraction, a table has the period."""
    constant, fixed = float_table.magic(2.0 ** (22 - TURN_BITS))
    turns = e.sum2(x, x, split_bf16(0.5 / math.pi), DType.FP32, float_rescale(constant))
    bits = e.bitcast(turns, DType.INT32)
    wrapped = e.shift(bits, 32 - TURN_BITS, "LSL")
    angle = tables.positions() / tables.POSITIONS + phase
    targets = np.ldexp(np.sin(2 * math.pi * angle), SINE_BITS)
    table = tables.fit_table(targets).table
    value = e.table(wrapped, table, integer_rescale(2.0**-16), DType.INT16)
    return affine(e, e.act(value, BF16, integer_rescale(), mode="I2F"), 2.0**-SINE_BITS)


def rounded(e: Emitter, x: str) -> str:
    """The nearest whole number, ties to even: adding and taking away 1.5 * 2**23 in fp32 leaves no fraction."""
    constant = 1.5 * 2.0**float_table.FP32_MANTISSA
    return e.act(e.act(x, DType.FP32, float_rescale(constant)), BF16, float_rescale(-constant))


def _sign(e: Emitter, x: str, zero: float = 0.0) -> str:
    """+-1, or ``zero`` (0 or 1): x times a large power of two twice, clipped."""
    huge = affine(e, x, 2.0**120, clip=(-1.0, 1.0))
    return affine(e, huge, 2.0**120, zero, clip=(-1.0, 1.0))


RECIPES: dict[str, Callable[..., str]] = {
    **{name: partial(_gated, name) for name in gates.GATED},
    "abs": lambda e, x: e.act(x, BF16, mode="ABS"),
    "ceil": lambda e, x: e.act(x, BF16, mode="CEL"),
    "clip": clip,
    "cos": lambda e, x: sine(e, x, 0.25),
    "exp": float_patterns.exp,
    "floor": lambda e, x: e.act(x, BF16, mode="FLR"),
    "hardsigmoid": hardsigmoid,
    "hardswish": lambda e, x: e.mul(x, hardsigmoid(e, x, 1.0 / 6.0, 0.5), BF16),
    "leaky_relu": leaky_relu,
    "log": float_patterns.log,
    "neg": lambda e, x: e.act(x, BF16, mode="NEG"),
    "pow": power,
    "reciprocal": float_patterns.reciprocal,
    "relu": lambda e, x: clip(e, x, 0.0),
    "round": rounded,
    "rsqrt": float_patterns.rsqrt,
    "sigmoid": lambda e, x: float_table.lower(e, x, functions.sigmoid, SIGMOID_RANGE),
    "sign": _sign,
    "sin": sine,
    "softplus": softplus,
    "softsign": softsign,
    "sqrt": float_patterns.sqrt,
}
"""Name -> recipe(emitter, x, **attributes) -> bf16 tensor."""
