"""Division of one tensor by another, or of a constant by a tensor."""

from __future__ import annotations

import numpy as np
from tvm.relax.dpl import DFPattern, is_op, wildcard

from torq_byoc.relay_patterns import affine
from torq_byoc.relay_patterns.affine import Affine
from torq_byoc.relay_patterns.composites import activation, divide
from torq_byoc.relay_patterns.legality import activation_reasons, float_reasons, output_reasons
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.matchers import any_of, dequantized, parameter, quantized
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View


def _quantized_graph() -> DFPattern:
    return quantized(is_op("relax.divide")(dequantized(), any_of(dequantized(), parameter())))


def _float_graph() -> DFPattern:
    return is_op("relax.divide")(wildcard(), wildcard())


def check_quantized(view: View) -> list[str]:
    """Both operands are tensors quantized per tensor; the divisor has 8 bits."""
    call = view.require("divide")
    reasons = output_reasons(view.output())
    for label, argument in (("its numerator", call.args[0]), ("its divisor", call.args[1])):
        operand = view.operand(argument)
        reasons += activation_reasons(operand, label)
        if operand.quant is None:
            reasons.append(f"{label} is not quantized")
    return list(dict.fromkeys(reasons))


def check_float(view: View) -> list[str]:
    """All float32; a constant divisor is neither zero nor so small that its reciprocal is infinite."""
    divisor = view.operand(view.require("divide").args[1]).constant
    return _reciprocal_reasons(divisor) + float_reasons(view)


def _reciprocal_reasons(divisor: np.ndarray | None) -> list[str]:
    if divisor is None:
        return []
    if not np.all(divisor):
        return ["it divides by a constant 0"]
    with np.errstate(over="ignore"):
        finite = np.all(np.isfinite(1.0 / divisor))
    return [] if finite else ["the reciprocal of its constant divisor is no finite number"]


def lower_quantized(low: Lowering) -> str:
    """The composite: tables of the divisor's reciprocal."""
    call = low.view.require("divide")
    x, y = (low.tensor(argument) for argument in call.args)
    return divide.lower(low.builder, x, y, low.out, low.origin)


def lower_float(low: Lowering) -> str:
    """Multiplication with the reciprocal, which is exact to the last bf16 place for a constant divisor."""
    numerator, divisor = low.view.require("divide").args
    stored = low.view.operand(divisor).constant
    if stored is not None:
        return low.emitter.mul(
            low.tensor(numerator), low.constant(1.0 / stored), low.emitter.info(low.tensor(numerator)).dtype
        )
    top = low.view.operand(numerator).constant
    if top is not None and top.size == 1 and top.ndim <= len(low.shape):
        inverse = activation.lower(low.builder, low.tensor(divisor), "reciprocal", None, low.origin)
        value = float(np.ravel(top)[0])
        return inverse if value == 1.0 else affine.lower_float(low, inverse, Affine(value))
    return divide.lower(low.builder, low.tensor(numerator), low.tensor(divisor), None, low.origin)


PATTERNS = (
    Pattern("torq.divide", "quantized", _quantized_graph, check_quantized, lower_quantized),
    Pattern("torq.bf16.divide", "bf16", _float_graph, check_float, lower_float),
)
