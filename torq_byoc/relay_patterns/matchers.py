"""Building blocks of the data-flow patterns."""

from __future__ import annotations

from functools import reduce

from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard


def dequantized(codes: DFPattern | None = None) -> DFPattern:
    """A dequantize of ``codes`` (anything by default) with constant parameters."""
    return is_op("relax.dequantize")(wildcard() if codes is None else codes, is_const(), is_const())


def quantized(value: DFPattern) -> DFPattern:
    """A quantize with constant parameters."""
    return is_op("relax.quantize")(value, is_const(), is_const())


def any_of(*patterns: DFPattern) -> DFPattern:
    """The first pattern that matches."""
    return reduce(lambda a, b: a | b, patterns)


def parameter() -> DFPattern:
    """A constant, stored quantized or as floats."""
    return any_of(dequantized(is_const()), is_const())


def activated(value: DFPattern) -> DFPattern:
    """``value``, or a clip of it that the rescale unit applies at no cost (relu, relu6, ...)."""
    return any_of(
        is_op("relax.nn.relu")(value),
        is_op("relax.clip")(value, wildcard(), wildcard()),
        value,
    )


def biased(value: DFPattern) -> DFPattern:
    """``value``, or ``value`` plus a constant on either side."""
    return any_of(is_op("relax.add")(value, parameter()), is_op("relax.add")(parameter(), value), value)


def one_of(names: tuple[str, ...], *arguments: DFPattern) -> DFPattern:
    """Any of several operators on the same arguments."""
    return any_of(*(is_op(name)(*arguments) for name in names))
