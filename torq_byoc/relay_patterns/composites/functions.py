"""The element-wise functions that tables can hold, in float64: the truth that every lowering is judged by."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow and exact to the last places in both tails."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def normal_cdf(x: Array) -> Array:
    """The standard normal distribution function, accurate in the lower tail."""
    return 0.5 * _erfc(-x / math.sqrt(2.0))


def gelu_tanh_gate(x: Array) -> Array:
    """The factor of x in the tanh form of gelu."""
    return sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def mish_gate(x: Array) -> Array:
    """tanh(softplus(x)), without cancellation in the lower tail."""
    e = np.exp(np.minimum(x, 40.0))
    return e * (e + 2.0) / (e * (e + 2.0) + 2.0)


def hardsigmoid(x: Array, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """clip(alpha * x + beta, 0, 1)."""
    return np.clip(alpha * x + beta, 0.0, 1.0)


def exponential_tail(x: Array, alpha: float = 1.0, rate: float = 1.0, gain: float = 1.0) -> Array:
    """gain * x above 0 and alpha * (exp(x * rate) - 1) below: elu, selu and celu."""
    return np.where(x > 0, gain * x, alpha * np.expm1(np.minimum(x, 0.0) * rate))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "celu": lambda x, alpha=1.0: exponential_tail(x, alpha, 1.0 / alpha),
    "clip": lambda x, low=-math.inf, high=math.inf: np.clip(x, low, high),
    "cos": np.cos,
    "elu": lambda x, alpha=1.0: exponential_tail(x, alpha),
    "erf": lambda x: _erf(x),
    "exp": np.exp,
    "floor": np.floor,
    "gelu": lambda x: x * normal_cdf(x),
    "gelu_tanh": lambda x: x * gelu_tanh_gate(x),
    "hardsigmoid": hardsigmoid,
    "hardswish": lambda x: x * hardsigmoid(x, 1.0 / 6.0, 0.5),
    "leaky_relu": lambda x, alpha=0.01: np.where(x >= 0, x, alpha * x),
    "log": np.log,
    "mish": lambda x: x * mish_gate(x),
    "neg": np.negative,
    "pow": lambda x, exponent=2.0: np.power(x, exponent),
    "reciprocal": lambda x: 1.0 / x,
    "relu": lambda x: np.maximum(x, 0.0),
    "round": np.rint,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "selu": lambda x, alpha=SELU_ALPHA, gamma=SELU_GAMMA: exponential_tail(x, alpha * gamma, 1.0, gamma),
    "sigmoid": sigmoid,
    "sign": np.sign,
    "silu": lambda x, alpha=1.0: x * sigmoid(alpha * x),
    "sin": np.sin,
    "softplus": softplus,
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "thresholded_relu": lambda x, alpha=1.0: np.where(x > alpha, x, 0.0),
}
"""Name -> function of a float64 array and the operator's attributes (ONNX defaults)."""


def evaluate(name: str, x: Array, **attributes: float) -> Array:
    """A function on float64 values; poles give infinities and points outside the domain NaN, silently.

    Raises:
        KeyError: no function has that name.
    """
    with np.errstate(all="ignore"):
        return FUNCTIONS[name](np.asarray(x, np.float64), **attributes)
