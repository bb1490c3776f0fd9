"""The pattern tables: one file an idea, earlier entries match first."""

from __future__ import annotations

from torq_byoc.relay_patterns.patterns import (
    activation,
    borders,
    conv,
    conv_transpose,
    dense,
    division,
    elementwise,
    integer_products,
    movement,
    normalization,
    pooling,
    reduction,
    softmax,
    unary,
)
from torq_byoc.relay_patterns.registry import Pattern, Precision

PATTERNS: tuple[Pattern, ...] = (
    *conv.PATTERNS,
    *conv_transpose.PATTERNS,
    *dense.PATTERNS,
    *integer_products.PATTERNS,
    *normalization.PATTERNS,
    *softmax.PATTERNS,
    *pooling.PATTERNS,
    *reduction.PATTERNS,
    *unary.PATTERNS,
    *activation.CHAIN_PATTERNS,
    *division.PATTERNS,
    *elementwise.PATTERNS,
    *activation.PATTERNS,
    *movement.PATTERNS,
    *borders.PATTERNS,
)


def patterns_for(precision: Precision) -> tuple[Pattern, ...]:
    """The entries that belong to one arithmetic."""
    return tuple(pattern for pattern in PATTERNS if pattern.precision == precision)


def pattern_named(name: str) -> Pattern:
    """The entry behind a composite function.

    Raises:
        KeyError: no entry has that name.
    """
    for pattern in PATTERNS:
        if pattern.name == name:
            return pattern
    raise KeyError(name)
