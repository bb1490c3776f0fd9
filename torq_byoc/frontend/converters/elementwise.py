"""Element-wise operators, kept as single Relax ops or as short chains with a fixed order."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant, constant_array, dtype_of, static_shape

_LARGEST = float(np.finfo(np.float32).max)
"""Of TVM's literals of any float type."""

Binary = Callable[[relax.Expr, relax.Expr], relax.Expr]


def clip(call: OnnxCall) -> relax.Expr:
    """Clip with constant bounds -> ``nn.relu`` for [0, inf), otherwise ``clip``; no bounds -> the input itself.

    Bounds that are computed at run time become ``minimum(maximum(x, lo), hi)``.
    """
    x = call.data()
    bounds = [call.input(1), call.input(2)]
    if any(b is not None and constant_array(b) is None for b in bounds):
        lowered = x if bounds[0] is None else relax.op.maximum(x, bounds[0])
        return lowered if bounds[1] is None else relax.op.minimum(lowered, bounds[1])
    high = _bound(call, 2, "max", math.inf)
    low = min(_bound(call, 1, "min", -math.inf), high)  # bounds in the wrong order: the upper one wins
    if low == -math.inf and high == math.inf:
        return x
    if low == 0 and high == math.inf:
        return relax.op.nn.relu(x)
    if not dtype_of(x).startswith("float") or any(_LARGEST < abs(bound) < math.inf for bound in (low, high)):
        return _clip_by_constants(x, low, high)
    return relax.op.clip(x, relax.prim_value(float(low)), relax.prim_value(float(high)))


def _bound(call: OnnxCall, index: int, attr: str, default: float) -> float:
    value = call.constant(index, attr)
    if value is None or value.size == 0 or np.isnan(float(value.reshape(-1)[0])):
        return default  # a NaN bound is no bound, as in the reference runtime
    return float(value.reshape(-1)[0])


def _clip_by_constants(x: relax.Expr, low: float, high: float) -> relax.Expr:
    """For bounds of other types than float, and those that TVM's literals cannot hold."""
    dtype = dtype_of(x)
    lowest, highest = (bound if dtype.startswith("float") or math.isinf(bound) else int(bound) for bound in (low, high))
    lowered = x if low == -math.inf else relax.op.maximum(x, relax.const(lowest, dtype))
    return lowered if high == math.inf else relax.op.minimum(lowered, relax.const(highest, dtype))


def chain(op: Binary) -> Converter:
    """Min, Max and Sum of n inputs -> n - 1 binary ops from left to right."""
    return lambda call: functools.reduce(op, [call.data(i) for i in range(len(call.inputs))])


def mean(call: OnnxCall) -> relax.Expr:
    """Mean of n inputs -> a chain of ``add``, then ``multiply`` by 1/n."""
    total = chain(relax.op.add)(call)
    count = len(call.inputs)
    return total if count == 1 else relax.op.multiply(total, relax.const(1.0 / count, dtype_of(call.data())))


def power(call: OnnxCall) -> relax.Expr:
    """Pow: constant exponents 1, 2, 3, 0.5, -1 -> x, products, ``sqrt``, ``divide(1, x)``; else ``power``."""
    x, exponent = call.data(0), call.data(1)
    dtype = dtype_of(x)
    value = constant_array(exponent)
    exact = float(value.reshape(-1)[0]) if value is not None and value.size == 1 and value.ndim <= x.ty.ndim else None
    if exact in (1.0, 2.0, 3.0):
        return functools.reduce(relax.op.multiply, [x] * int(exact))
    if exact in (0.5, -1.0) and dtype.startswith("float"):
        return relax.op.sqrt(x) if exact == 0.5 else relax.op.divide(relax.const(1.0, dtype), x)
    if not dtype.startswith("float"):
        raise call.unsupported(f"only the constant exponents 1, 2, 3 exist for {dtype}")
    return relax.op.power(x, exponent if dtype_of(exponent) == dtype else relax.op.astype(exponent, dtype))


def swish(call: OnnxCall) -> relax.Expr:
    """Swish -> ``multiply(x, sigmoid(x))``; with alpha != 1, ``multiply(x, sigmoid(multiply(x, alpha)))``."""
    x = call.data()
    alpha = float(call.attrs.get("alpha", 1.0))
    inner = x if alpha == 1.0 else relax.op.multiply(x, relax.const(alpha, dtype_of(x)))
    return relax.op.multiply(x, relax.op.sigmoid(inner))


def mish(call: OnnxCall) -> relax.Expr:
    """Mish -> ``multiply(x, tanh(softplus(x)))``.

    Softplus is ``add(nn.relu(x), log(add(1, exp(negative(abs(x))))))``, which overflows nowhere.
    """
    x = call.data()
    decay = relax.op.exp(relax.op.negative(relax.op.abs(x)))
    softplus = relax.op.add(relax.op.nn.relu(x), relax.op.log(relax.op.add(relax.const(1.0, dtype_of(x)), decay)))
    return relax.op.multiply(x, relax.op.tanh(softplus))


def elu(call: OnnxCall) -> relax.Expr:
    """Elu -> ``add(multiply(-alpha, nn.relu(subtract(1, exp(x)))), nn.relu(x))``."""
    return _exponential(call, float(call.attrs.get("alpha", 1.0)))


def selu(call: OnnxCall) -> relax.Expr:
    """Selu -> ``multiply(gamma, the chain of Elu)``."""
    gamma = float(call.attrs.get("gamma", 1.05070102214813232421875))
    chain_of_elu = _exponential(call, float(call.attrs.get("alpha", 1.67326319217681884765625)))
    return relax.op.multiply(relax.const(gamma, dtype_of(call.data())), chain_of_elu)


def _exponential(call: OnnxCall, alpha: float) -> relax.Expr:
    x, dtype = call.data(), dtype_of(call.data())
    negative = relax.op.nn.relu(relax.op.subtract(relax.const(1.0, dtype), relax.op.exp(x)))
    return relax.op.add(relax.op.multiply(relax.const(-alpha, dtype), negative), relax.op.nn.relu(x))


def prelu(call: OnnxCall) -> relax.Expr:
    """PRelu with one constant slope -> ``nn.leakyrelu``; slopes along one axis -> ``nn.prelu(x, const[n], axis)``.

    Any other slope -> ``add(nn.relu(x), multiply(slope, minimum(x, 0)))``; constant ones that are not all finite ->
    ``where(less(x, 0), multiply(slope, x), x)``, since they make NaN of 0.
    """
    x = call.data()
    shape = static_shape(x, call)
    slope = constant_array(call.data(1))
    if slope is not None and not np.all(np.isfinite(slope)):
        below = relax.op.less(x, relax.const(0, dtype_of(x)))
        return relax.op.where(below, relax.op.multiply(call.data(1), x), x)
    if slope is not None and slope.size == 1:
        return relax.op.nn.leakyrelu(x, float(slope.reshape(-1)[0]))
    if slope is not None and slope.ndim <= len(shape):
        axes = [i + len(shape) - slope.ndim for i, n in enumerate(slope.shape) if n != 1]
        if len(axes) == 1:
            return relax.op.nn.prelu(x, constant(slope.reshape(-1)), axes[0])
    negative = relax.op.minimum(x, relax.const(0, dtype_of(x)))
    return relax.op.add(relax.op.nn.relu(x), relax.op.multiply(call.data(1), negative))


CONVERTERS: dict[str, Converter] = {
    "Clip": clip,
    "Min": chain(relax.op.minimum),
    "Max": chain(relax.op.maximum),
    "Sum": chain(relax.op.add),
    "Mean": mean,
    "Pow": power,
    "Elu": elu,
    "Selu": selu,
    "Swish": swish,
    "Mish": mish,
    "PRelu": prelu,
}
