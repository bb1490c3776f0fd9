"""Softmax."""

from __future__ import annotations

from tvm.relax.dpl import DFPattern, is_op, wildcard

from torq_byoc.relay_patterns.composites import softmax
from torq_byoc.relay_patterns.legality import float_reasons, int_attr, quantized_reasons
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.matchers import dequantized, quantized
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View


def _quantized_graph() -> DFPattern:
    return quantized(is_op("relax.nn.softmax")(dequantized()))


def _float_graph() -> DFPattern:
    return is_op("relax.nn.softmax")(wildcard())


def check_quantized(view: View) -> list[str]:
    """Data and result quantized per tensor."""
    return quantized_reasons(view, view.require("nn.softmax").args[0])


def check_float(view: View) -> list[str]:
    """All float32."""
    return float_reasons(view)


def lower(low: Lowering) -> str:
    """The composite, in the arithmetic of the group."""
    call = low.view.require("nn.softmax")
    return softmax.lower(low.builder, low.tensor(call.args[0]), int_attr(call.attrs.axis), low.out, low.origin)


PATTERNS = (
    Pattern("torq.softmax", "quantized", _quantized_graph, check_quantized, lower),
    Pattern("torq.bf16.softmax", "bf16", _float_graph, check_float, lower),
)
