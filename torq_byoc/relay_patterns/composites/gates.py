"""Activations of the form x * gate(x): the gate, the range in which a table holds it, bounds of the product.

Functions through the origin keep their relative accuracy there, because the gate has no zero at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from torq_byoc.relay_patterns.composites import float_table, functions, tuning
from torq_byoc.relay_patterns.composites.float_table import Range

Array = np.ndarray

LOGISTIC_RANGE = (-10.5, 6.5)
"""Above, the logistic function rounds to 1 in bf16; below, it is under 3e-5."""
NORMAL_RANGE = Range(-5.25, 3.25, below=0.0)
TANH_RANGE = Range(-4.0, 4.0)
"""Beyond, erf and tanh round to 1, and the clip of the product says so."""
ELU_RANGE = 8.0
UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True)
class Gate:
    """clip(x * factor(x)), with ``factor`` tabulated over ``span``."""

    factor: Callable[[Array], Array]
    span: Range
    clip: tuple[float, float] = UNBOUNDED

    def product(self, x: Array) -> Array:
        """The exact function."""
        return np.clip(x * self.factor(x), *self.clip)


def _erf(x: Array) -> Array:
    return _over_x(functions.FUNCTIONS["erf"](x), x, 2.0 / math.sqrt(math.pi))


def _over_x(values: Array, x: Array, at_zero: float) -> Array:
    zero = x == 0
    return np.where(zero, at_zero, values / np.where(zero, 1.0, x))


def _exponential_unit(alpha: float, rate: float, gain: float) -> Gate:
    """elu, selu and celu: bounded below by -alpha."""

    def factor(x: Array) -> Array:
        tail = functions.exponential_tail(x, alpha, rate, gain)
        return np.where(x >= 0, gain, tail / np.where(x >= 0, 1.0, x))

    return Gate(factor, Range(-ELU_RANGE / rate, ELU_RANGE / rate), (-alpha, math.inf))


def _silu(alpha: float = 1.0) -> Gate:
    span = Range(LOGISTIC_RANGE[0] / alpha, LOGISTIC_RANGE[1] / alpha, below=0.0)
    return Gate(lambda x: functions.sigmoid(alpha * x), span)


_GATES: dict[str, Callable[..., Gate]] = {
    "celu": lambda alpha=1.0: _exponential_unit(alpha, 1.0 / alpha, 1.0),
    "elu": lambda alpha=1.0: _exponential_unit(alpha, 1.0, 1.0),
    "erf": lambda: Gate(_erf, TANH_RANGE, (-1.0, 1.0)),
    "gelu": lambda: Gate(functions.normal_cdf, NORMAL_RANGE),
    "gelu_tanh": lambda: Gate(functions.gelu_tanh_gate, NORMAL_RANGE),
    "mish": lambda: Gate(functions.mish_gate, Range(*LOGISTIC_RANGE, below=0.0)),
    "selu": lambda alpha=functions.SELU_ALPHA, gamma=functions.SELU_GAMMA: _exponential_unit(alpha * gamma, 1.0, gamma),
    "silu": _silu,
    "tanh": lambda: Gate(lambda x: _over_x(np.tanh(x), x, 1.0), TANH_RANGE, (-1.0, 1.0)),
}
GATED = frozenset(_GATES)
"""Names of the functions that have a gate."""


@lru_cache(maxsize=64)
def gate_table(name: str, attributes: tuple[tuple[str, float], ...]) -> tuple[Gate, np.ndarray]:
    """A function's gate and its table of bf16 patterns, tuned so that products round well."""
    gate = _GATES[name](**dict(attributes))
    constant, fixed = float_table.magic(gate.span.limit)
    positions = tuning.fixed_positions(constant, float_table.position_of(fixed, gate.span))
    table = float_table.pattern_table(gate.factor, gate.span).table
    return gate, tuning.tune_gate(table, positions, gate.product, gate.clip, gate.span.step)
