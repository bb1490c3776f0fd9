"""Element-wise functions of one bf16 tensor: single operators, and the chains in which exporters write some of them.

A chain is matched by its form and then judged by its values: its constants make it the named function, or the
group is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from torq_byoc.relay_patterns import affine
from torq_byoc.relay_patterns.composites import activation, functions
from torq_byoc.relay_patterns.elementwise_functions import evaluate
from torq_byoc.relay_patterns.legality import float_reasons
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.matchers import any_of
from torq_byoc.relay_patterns.patterns.unary import affine_form
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, constant_value, op_name

_OPERATORS = {
    "abs": "abs",
    "negative": "neg",
    "floor": "floor",
    "ceil": "ceil",
    "sign": "sign",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "erf": "erf",
    "nn.silu": "silu",
    "nn.gelu": "gelu",
    "nn.gelu_tanh": "gelu_tanh",
    "nn.leakyrelu": "leaky_relu",
    "nn.softplus": "softplus",
}
"""Relax operator -> name of the function."""

_SAMPLES = np.linspace(-8.0, 8.0, 321)
_AFFINE_DEPTH = 3


def _sum(a: DFPattern, b: DFPattern) -> DFPattern:
    return any_of(is_op("relax.add")(a, b), is_op("relax.add")(b, a))


def _times(a: DFPattern, b: DFPattern) -> DFPattern:
    return any_of(is_op("relax.multiply")(a, b), is_op("relax.multiply")(b, a))


def _scaled(a: DFPattern) -> DFPattern:
    return any_of(_times(a, is_const()), is_op("relax.divide")(a, is_const()))


def _clipped(a: DFPattern) -> DFPattern:
    return is_op("relax.clip")(a, wildcard(), wildcard())


def _softplus(x: DFPattern) -> DFPattern:
    tail = is_op("relax.exp")(is_op("relax.negative")(is_op("relax.abs")(x)))
    positive = any_of(is_op("relax.nn.relu")(x), is_op("relax.maximum")(x, is_const()))
    written_out = is_op("relax.add")(positive, is_op("relax.log")(_sum(is_const(), tail)))
    return any_of(written_out, is_op("relax.nn.softplus")(x))


def _hardsigmoid(x: DFPattern) -> DFPattern:
    line = _sum(any_of(_scaled(x), x), is_const())
    return any_of(_scaled(_clipped(line)), _clipped(line))


def _exponential_unit(x: DFPattern) -> DFPattern:
    below = is_op("relax.nn.relu")(is_op("relax.subtract")(is_const(), is_op("relax.exp")(x)))
    return _sum(_times(is_const(), below), is_op("relax.nn.relu")(x))


def _gelu(x: DFPattern) -> DFPattern:
    gate = _sum(is_op("relax.erf")(_scaled(x)), is_const())
    return any_of(_scaled(_times(x, gate)), _times(_scaled(x), gate), _times(x, _scaled(gate)))


@dataclass(frozen=True)
class Chain:
    """A function that arrives as several operators."""

    function: str
    graph: Callable[[DFPattern], DFPattern]
    attributes: dict[str, float] = field(default_factory=dict)


CHAINS = (
    Chain("hardswish", lambda x: _times(x, _hardsigmoid(x))),
    Chain("hardswish", lambda x: _scaled(_times(x, _hardsigmoid(x)))),
    Chain("silu", lambda x: _times(x, is_op("relax.sigmoid")(x))),
    Chain("mish", lambda x: _times(x, is_op("relax.tanh")(_softplus(x)))),
    Chain("gelu", _gelu),
    Chain("selu", lambda x: _times(is_const(), _exponential_unit(x))),
    Chain("softplus", _softplus),
    Chain("softsign", lambda x: is_op("relax.divide")(x, _sum(is_op("relax.abs")(x), is_const()))),
)


def check_chain(chain: Chain, view: View) -> list[str]:
    """All float32; scalar constants that make the chain the function its form suggests."""
    reasons = float_reasons(view) + _scalar_reasons(view)
    if reasons:
        return reasons
    expected = functions.evaluate(chain.function, _SAMPLES, **chain.attributes)
    if not np.allclose(evaluate(view, _SAMPLES), expected, rtol=1e-4, atol=1e-5):
        reasons.append(f"it has the form of {chain.function} with other constants")
    return reasons


def lower_chain(chain: Chain, low: Lowering) -> str:
    """The composite of the function."""
    return activation.lower(low.builder, _source(low), chain.function, None, low.origin, **chain.attributes)


def _scalar_reasons(view: View) -> list[str]:
    values = (constant_value(argument) for call in view.calls() for argument in call.args)
    return ["it has a constant that is no scalar"] if any(v is not None and v.size != 1 for v in values) else []


def _source(low: Lowering) -> str:
    """The one tensor that the group reads."""
    for call in low.view.calls():
        for argument in call.args:
            if low.view.resolve(argument) is argument and hasattr(argument, "name"):
                return low.tensor(argument)
    raise AssertionError("the group reads no tensor")


def check_operator(view: View) -> list[str]:
    """float32; softplus without a sharpness of its own."""
    reasons = float_reasons(view)
    if op_name(view.root) == "relax.nn.softplus" and float(view.root.attrs.beta) != 1.0:
        reasons.append("its beta is not 1")
    return reasons


def lower_operator(low: Lowering) -> str:
    """The composite of the operator."""
    call = low.view.root
    attributes = {"alpha": float(call.attrs.alpha)} if op_name(call) == "relax.nn.leakyrelu" else {}
    function = _OPERATORS[op_name(call).removeprefix("relax.")]
    return activation.lower(low.builder, low.tensor(call.args[0]), function, None, low.origin, **attributes)


def check_power(view: View) -> list[str]:
    """float32 to a constant scalar exponent."""
    return float_reasons(view) + _scalar_reasons(view)


def lower_power(low: Lowering) -> str:
    """Products, roots or the logarithm, by exponent."""
    base, exponent = low.view.root.args
    value = float(low.view.operand(exponent).real().reshape(-1)[0])
    return activation.lower(low.builder, low.tensor(base), "pow", None, low.origin, exponent=value)


def _affine_step(x: DFPattern) -> DFPattern:
    return any_of(
        _clipped(x),
        is_op("relax.nn.relu")(x),
        is_op("relax.negative")(x),
        *(
            pattern
            for name in ("add", "multiply", "subtract", "maximum", "minimum")
            for pattern in (is_op(f"relax.{name}")(x, is_const()), is_op(f"relax.{name}")(is_const(), x))
        ),
        is_op("relax.divide")(x, is_const()),
    )


def _affine_graph(depth: int) -> DFPattern:
    graph = wildcard()
    for _ in range(depth):
        graph = _affine_step(graph)
    return graph


def check_affine(view: View) -> list[str]:
    """float32; scalar constants that bf16 sums hold."""
    reasons = float_reasons(view) + _scalar_reasons(view)
    if not reasons and affine_form(view, view.root) is None:
        reasons.append("it is not clip(a * x + b)")
    return reasons


def lower_affine(low: Lowering) -> str:
    """One pass."""
    line = affine_form(low.view, low.view.root)
    assert line is not None
    return affine.lower_float(low, _source(low), line)


CHAIN_PATTERNS = tuple(
    Pattern(
        f"torq.bf16.{chain.function}.chain{position}",
        "bf16",
        partial(lambda chain: chain.graph(wildcard()), chain),
        partial(check_chain, chain),
        partial(lower_chain, chain),
    )
    for position, chain in enumerate(CHAINS)
)
"""To be tried before the operators that the chains consist of."""

PATTERNS = (
    *(
        Pattern(f"torq.bf16.affine{depth}", "bf16", partial(_affine_graph, depth), check_affine, lower_affine)
        for depth in range(_AFFINE_DEPTH, 0, -1)
    ),
    Pattern("torq.bf16.power", "bf16", lambda: is_op("relax.power")(wildcard(), is_const()), check_power, lower_power),
    *(
        Pattern(
            f"torq.bf16.{function}",
            "bf16",
            partial(lambda name: is_op(f"relax.{name}")(wildcard()), name),
            check_operator,
            lower_operator,
        )
        for name, function in _OPERATORS.items()
    ),
)
