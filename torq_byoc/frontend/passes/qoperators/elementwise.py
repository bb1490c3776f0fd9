"""Operators on integers whose float form takes the same operands and attributes."""

from __future__ import annotations

import numpy as np

from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter

_AXES_AS_INPUT = 18
"""The operator set in which ReduceMean takes its axes as an input."""


def _binary(op_type: str) -> Rewrite:
    return lambda r: r.finish_quantized(r.emit(op_type, [r.triple(0), r.triple(3)]), 6, 7)


def _unary(op_type: str, *kept: str) -> Rewrite:
    return lambda r: r.finish_quantized(r.emit(op_type, [r.triple(0)], **r.attributes(*kept)), 3, 4)


def _concat(r: Rewriter) -> None:
    parts = [r.triple(i) for i in range(2, len(r.node.input), 3)]
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
    ("com.microsoft", "QLinearConcat"): _concat,
    ("com.microsoft", "QLinearWhere"): _where,
    ("com.microsoft", "QLinearReduceMean"): _reduce_mean,
    ("com.microsoft", "QuantizeLinear"): _default_domain,
    ("com.microsoft", "DequantizeLinear"): _default_domain,
}
