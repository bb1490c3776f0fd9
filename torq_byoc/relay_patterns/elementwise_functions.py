"""Element-wise Relax operators as numpy functions: what a look-up table of a chain of them holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax
from tvm.ir import Call

from torq_byoc.relay_patterns.composites import functions
from torq_byoc.relay_patterns.lowering import scalar
from torq_byoc.relay_patterns.view import View, constant_value, op_name

Array = np.ndarray

_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "abs": np.abs,
    "negative": np.negative,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": functions.sigmoid,
    "tanh": np.tanh,
    "erf": functions.FUNCTIONS["erf"],
    "clip": np.clip,
    "nn.relu": lambda x: np.maximum(x, 0.0),
    "nn.silu": functions.FUNCTIONS["silu"],
    "nn.gelu": functions.FUNCTIONS["gelu"],
    "nn.gelu_tanh": functions.FUNCTIONS["gelu_tanh"],
}
_WITH_ATTRIBUTES: Mapping[str, Callable[[Call, Array], Array]] = {
    "nn.leakyrelu": lambda call, x: np.where(x >= 0, x, float(call.attrs.alpha) * x),
    "nn.softplus": lambda call, x: functions.softplus(float(call.attrs.beta) * x) / float(call.attrs.beta),
}
ELEMENTWISE_OPS = frozenset(f"relax.{name}" for name in (*_FUNCTIONS, *_WITH_ATTRIBUTES))


def evaluate(view: View, x: Array) -> Array:
    """The group's real-valued result for real inputs x (float64); quantize and dequantize are left out.

    The group has one tensor input, whose dequantized values are ``x``, and otherwise scalar constants.
    Infinities and NaN (poles, points outside a domain) come out as they are.
    """
    values: dict[relax.Var, Array] = {}

    def value_of(expr: relax.Expr) -> Array:
        if isinstance(expr, relax.Var):
            return values.get(expr, x)
        constant = constant_value(expr)
        return np.asarray(scalar(expr)) if constant is None else constant.astype(np.float64).reshape(-1)

    def compute(call: Call) -> Array:
        name = op_name(call).removeprefix("relax.")
        if name == "dequantize":
            operand = view.operand(call)
            return x if operand.constant is None else operand.real().reshape(-1)
        if name == "quantize":
            return value_of(call.args[0])
        arguments = [value_of(argument) for argument in call.args]
        if name in _WITH_ATTRIBUTES:
            return _WITH_ATTRIBUTES[name](call, arguments[0])
        return _FUNCTIONS[name](*arguments)

    with np.errstate(all="ignore"):
        for var, value in view.bindings.items():
            if isinstance(value, Call):
                values[var] = compute(value)
        return compute(view.root)
