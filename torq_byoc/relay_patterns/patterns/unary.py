"""Element-wise functions of one tensor: requantize, clip, affine maps, and everything else code by code."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, is_op

from torq_byoc.relay_patterns import affine
from torq_byoc.relay_patterns.affine import Affine
from torq_byoc.relay_patterns.chains import CHAIN
from torq_byoc.relay_patterns.composites import activation, code_functions
from torq_byoc.relay_patterns.elementwise_functions import ELEMENTWISE_OPS, evaluate
from torq_byoc.relay_patterns.legality import quantized_reasons
from torq_byoc.relay_patterns.lowering import Lowering, clip_bounds, quant_of, scalar
from torq_byoc.relay_patterns.matchers import any_of, dequantized, quantized
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, constant_value, op_name

_SINGLE = sorted(
    ELEMENTWISE_OPS - {f"relax.{n}" for n in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")}
)

_LARGEST = float(np.finfo(np.float32).max)
"""Of the numbers of an affine map; greater ones have no float32."""


def _graph() -> DFPattern:
    """A requantize, or one element-wise operator; longer chains come from ``chains.group_chains``."""
    source = dequantized()
    return quantized(any_of(source, *(is_op(name)(source, varg_default_wildcard=True) for name in _SINGLE)))


def check(view: View) -> list[str]:
    """Source and result quantized per tensor, 8 or 16 bits."""
    return quantized_reasons(view, _source(view))


def _source(view: View) -> relax.Expr:
    """The dequantize that the group starts from."""
    for call in view.calls():
        if op_name(call) == "relax.dequantize" and constant_value(view.resolve(call.args[0])) is None:
            return call
    raise AssertionError("the group reads no tensor")


def lower(low: Lowering) -> str:
    """act (or mul) for clip(a * x + b); two straight pieces of their own; see ``code_functions`` for anything else."""
    source, out = quant_of(low.view.operand(_source(low.view))), low.out
    assert out is not None
    x = low.tensor(_source(low.view))
    line = affine_form(low.view, low.view.root.args[0])
    if line is not None:
        return affine.lower_quantized(low, x, source, line, out)
    slope = _slope(low.view)
    if slope is not None:
        return activation.lower(low.builder, x, "leaky_relu", out, low.origin, alpha=slope)
    return code_functions.lower(low.emitter, x, partial(_function, low.view), out, low.config)


def _slope(view: View) -> float | None:
    """The slope of a leaky relu that stands alone."""
    call = view.resolve(view.root.args[0])
    if op_name(call) != "relax.nn.leakyrelu" or op_name(view.resolve(call.args[0])) != "relax.dequantize":
        return None
    return float(call.attrs.alpha)


def _function(view: View, x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(evaluate(view, x), x.shape)


def affine_form(view: View, expr: relax.Expr) -> Affine | None:
    """The group's value ``expr`` as clip(a * x + b) of the group's tensor, a and b finite as float32, or None."""
    value = view.resolve(expr)
    if not isinstance(value, Call):
        return Affine() if isinstance(value, relax.Var) else None
    name = op_name(value).removeprefix("relax.")
    if name == "dequantize":
        return None if view.operand(value).constant is not None else Affine()
    limits = clip_bounds(view, value)
    if limits is not None or name == "negative":
        inner = affine_form(view, value.args[0])
        if inner is None:
            return None
        return inner.scaled(-1.0) if limits is None else inner.clipped(*limits)
    if name not in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
        return None
    left, right = (_number(view, argument) for argument in value.args)
    if (left is None) == (right is None):
        return None
    inner = affine_form(view, value.args[0] if left is None else value.args[1])
    found = None if inner is None else _combined(name, inner, left, right)
    fits = found is not None and all(abs(number) <= _LARGEST for number in (found.factor, found.offset))
    return found if fits else None


def _combined(name: str, inner: Affine, left: float | None, right: float | None) -> Affine | None:
    """``inner`` combined with the one number among ``left`` and ``right``."""
    number = left if right is None else right
    assert number is not None
    if name == "add":
        return inner.shifted(number)
    if name == "multiply":
        return inner.scaled(number)
    if name == "maximum":
        return inner.clipped(number, float("inf"))
    if name == "minimum":
        return inner.clipped(float("-inf"), number)
    if name == "subtract":
        return inner.shifted(-number) if left is None else inner.scaled(-1.0).shifted(number)
    return inner.scaled(1.0 / number) if left is None and number else None


def _number(view: View, expr: relax.Expr) -> float | None:
    """The value of a scalar constant, stored as a float or quantized."""
    operand = view.operand(expr)
    if operand.constant is not None:
        return float(operand.real().reshape(-1)[0]) if operand.constant.size == 1 else None
    return scalar(expr) if not isinstance(expr, relax.Expr) else None


PATTERNS = (Pattern(CHAIN, "quantized", _graph, check, lower),)
