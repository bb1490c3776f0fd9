"""Operators on integers whose float form takes the same operands and attributes."""

from __future__ import annotations

import numpy as np

from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter

_UNARY = (0, 1, 3)
"""Inputs that an operator on one tensor must have: data, its scale, the result's scale."""

_AXES_AS_INPUT = 18
"""The operator set in which ReduceMean takes its axes as an input."""


def _binary(op_type: str) -> Rewrite:
    return Rewrite(
        lambda r: r.finish_quantized(r.emit(op_type, [r.triple(0), r.triple(3)]), 6, 7), needs=(0, 1, 3, 4, 6)
    )


def _unary(op_type: str, *kept: str) -> Rewrite:
    return Rewrite(
        lambda r: r.finish_quantized(r.emit(op_type, [r.triple(0)], **r.attributes(*kept)), 3, 4), needs=_UNARY
    )


def _concat(r: Rewriter) -> None:
    starts = range(2, len(r.node.input), 3)
    if not all(r.name(i) and r.name(i + 1) for i in starts):
        raise r.refusal("a part, or the scale of one, is left out")
    parts = [r.triple(i) for i in starts]
    r.finish_quantized(r.emit("Concat", parts, **r.attributes("axis")), 0, 1)


def _where(r: Rewriter) -> None:
    r.finish_quantized(r.emit("Where", [r.name(0), r.triple(1), r.triple(4)]), 7, 8)


def _reduce_mean(r: Rewriter) -> None:
    inputs, attributes = [r.triple(0)], r.attributes("axes", "keepdims")
    if r.editor.opset >= _AXES_AS_INPUT and "axes" in attributes:
        inputs.append(r.constant(np.array(attributes.pop("axes"), np.int64), "axes"))
    r.finish_quantized(r.emit("ReduceMean", inputs, **attributes), 3, 4)


def _default_domain(r: Rewriter) -> None:
    """The contributed quantize operators differ from the ONNX ones only in the types they allowed first."""
    r.emit(r.node.op_type, [r.name(0), r.name(1), *filter(None, [r.name(2)])], **r.attributes("axis", "block_size"))
    r.finish()


REWRITES: dict[tuple[str, str], Rewrite] = {
    ("com.microsoft", "QLinearAdd"): _binary("Add"),
    ("com.microsoft", "QLinearMul"): _binary("Mul"),
    ("com.microsoft", "QLinearSigmoid"): _unary("Sigmoid"),
    ("com.microsoft", "QLinearLeakyRelu"): _unary("LeakyRelu", "alpha"),
    ("com.microsoft", "QLinearConcat"): Rewrite(_concat, needs=(0, 2, 3)),
    ("com.microsoft", "QLinearWhere"): Rewrite(_where, needs=(0, 1, 2, 4, 5, 7)),
    ("com.microsoft", "QLinearReduceMean"): Rewrite(_reduce_mean, needs=_UNARY),
    ("com.microsoft", "QuantizeLinear"): Rewrite(_default_domain, needs=(0, 1)),
    ("com.microsoft", "DequantizeLinear"): Rewrite(_default_domain, needs=(0, 1)),
}
