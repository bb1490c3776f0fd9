"""Softmax and log-softmax."""

from __future__ import annotations

from functools import partial

from tvm.relax.dpl import DFPattern, is_op, wildcard

from torq_byoc.relay_patterns.composites import softmax
from torq_byoc.relay_patterns.legality import float_reasons, int_attr, quantized_reasons
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.matchers import dequantized, quantized
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View

_SOFTMAX, _LOG_SOFTMAX = "relax.nn.softmax", "relax.nn.log_softmax"


def _quantized_graph(name: str) -> DFPattern:
    return quantized(is_op(name)(dequantized()))


def _float_graph(name: str) -> DFPattern:
    return is_op(name)(wildcard())


def check_quantized(view: View) -> list[str]:
    """Data and result quantized per tensor."""
    return quantized_reasons(view, view.require(_SOFTMAX, _LOG_SOFTMAX).args[0])


def check_float(view: View) -> list[str]:
    """All float32."""
    return float_reasons(view)


def lower(low: Lowering) -> str:
    """The composite, in the arithmetic of the group."""
    call = low.view.require(_SOFTMAX, _LOG_SOFTMAX)
    composite = softmax.lower if low.view.find(_SOFTMAX) is not None else softmax.lower_log
    return composite(low.builder, low.tensor(call.args[0]), int_attr(call.attrs.axis), low.out, low.origin)


PATTERNS = tuple(
    entry
    for name, op in (("softmax", _SOFTMAX), ("log_softmax", _LOG_SOFTMAX))
    for entry in (
        Pattern(f"torq.{name}", "quantized", partial(_quantized_graph, op), check_quantized, lower),
        Pattern(f"torq.bf16.{name}", "bf16", partial(_float_graph, op), check_float, lower),
    )
)
