"""Integer operators become float operators between DequantizeLinear and QuantizeLinear.

Before: ``y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b)``
After:  ``y = QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(b, xs * ws)), ys, yz)``

Both forms say the same; the rest of the compiler knows only the second one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from torq_byoc.frontend.graph import DEFAULT_DOMAINS, attribute
from torq_byoc.frontend.passes.editor import GraphEditor


def qoperator_to_qdq(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    changes = 0
    for node in editor.graph.node:
        rewrite = _REWRITES.get((node.domain if node.domain not in DEFAULT_DOMAINS else "", node.op_type))
        if rewrite is not None:
            rewrite(_Rewriter(node, editor))
            changes += 1
    return changes


@dataclass
class _Rewriter:
    """Builds the nodes that take the place of one integer operator."""

    node: onnx.NodeProto
    editor: GraphEditor

    def __post_init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def name(self, index: int) -> str:
        return self.node.input[index] if index < len(self.node.input) else ""

    def emit(self, op_type: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        result = output or self.editor.fresh_name(f"{self.node.output[0]}_{op_type}")
        self.nodes.append(self.editor.node(op_type, inputs, result, self.node, **attributes))
        return result

    def dequantized(self, first: int, axis: int = 1) -> str:
        """Inputs first, first + 1, first + 2 are tensor, scale and zero point; axis matters per channel only."""
        tensor, scale, zero = self.name(first), self.scale(first + 1), self.name(first + 2)
        per_axis = math.prod(n or 1 for n in self.editor.shapes.get(scale, ())) > 1
        extra: dict[str, Any] = {"axis": axis} if per_axis else {}
        return self.emit("DequantizeLinear", [n for n in (tensor, scale, zero) if n], **extra)

    def scale(self, index: int) -> str:
        """A scale as float32: these operators compute with it exactly, whatever narrower type it is stored in."""
        name = self.name(index)
        narrow = self.editor.types.get(name) in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
        return self.emit("Cast", [name], to=onnx.TensorProto.FLOAT) if narrow else name

    def bias(self, name: str, scales: tuple[int, int]) -> str:
        """An int32 bias, whose scale is the product of two others."""
        first, second = (self.editor.array(self.name(i)) for i in scales)
        if first is None or second is None:
            scale = self.emit("Mul", [self.name(scales[0]), self.name(scales[1])])
            count = 1
        else:
            product = (first.astype(np.float32).reshape(-1) * second.astype(np.float32).reshape(-1)).astype(np.float32)
            scale = self.editor.add_constant(product if product.size > 1 else product.reshape(()), f"{name}_scale")
            count = product.size
        extra: dict[str, Any] = {"axis": 0} if count > 1 else {}
        return self.emit("DequantizeLinear", [name, scale], **extra)

    def finish(self, value: str, scale: int, zero: int) -> None:
        operands = [n for n in (value, self.scale(scale), self.name(zero)) if n]
        self.emit("QuantizeLinear", operands, self.node.output[0])
        self.editor.replace(self.node, self.nodes)

    def attributes(self, *names: str) -> dict[str, Any]:
        held = {a.name: onnx.helper.get_attribute_value(a) for a in self.node.attribute}
        return {name: held[name] for name in names if name in held}


def _convolution(r: _Rewriter) -> None:
    inputs = [r.dequantized(0), r.dequantized(3, axis=0)]
    if r.name(8):
        inputs.append(r.bias(r.name(8), (1, 4)))
    kept = r.attributes("kernel_shape", "strides", "pads", "dilations", "group", "auto_pad")
    r.finish(r.emit("Conv", inputs, **kept), 6, 7)


def _matmul(r: _Rewriter) -> None:
    rank = len(r.editor.shapes.get(r.name(3), (0, 0)))
    r.finish(r.emit("MatMul", [r.dequantized(0), r.dequantized(3, axis=rank - 1)]), 6, 7)


def _gemm(r: _Rewriter) -> None:
    by_rows = bool(attribute(r.node, "transB", 0))
    inputs = [r.dequantized(0), r.dequantized(3, axis=0 if by_rows else 1)]
    if r.name(6):
        inputs.append(r.bias(r.name(6), (1, 4)))
    product = r.emit("Gemm", inputs, **r.attributes("alpha", "transA", "transB"))
    if r.name(7):
        r.finish(product, 7, 8)
    else:
        r.nodes[-1].output[0] = r.node.output[0]
        r.editor.replace(r.node, r.nodes)


def _binary(op_type: str) -> Callable[[_Rewriter], None]:
    return lambda r: r.finish(r.emit(op_type, [r.dequantized(0), r.dequantized(3)]), 6, 7)


def _unary(op_type: str, *kept: str) -> Callable[[_Rewriter], None]:
    return lambda r: r.finish(r.emit(op_type, [r.dequantized(0)], **r.attributes(*kept)), 3, 4)


def _pool(op_type: str) -> Callable[[_Rewriter], None]:
    def rewrite(r: _Rewriter) -> None:
        source = r.dequantized(0)
        last = bool(attribute(r.node, "channels_last", 0))
        if last:
            source = r.emit("Transpose", [source], perm=[0, 3, 1, 2])
        kept = r.attributes("kernel_shape", "strides", "pads", "ceil_mode", "count_include_pad", "auto_pad")
        pooled = r.emit(op_type, [source], **kept)
        r.finish(r.emit("Transpose", [pooled], perm=[0, 2, 3, 1]) if last else pooled, 3, 4)

    return rewrite


def _concat(r: _Rewriter) -> None:
    parts = [r.dequantized(i) for i in range(2, len(r.node.input), 3)]
    r.finish(r.emit("Concat", parts, **r.attributes("axis")), 0, 1)


def _default_domain(r: _Rewriter) -> None:
    """The contributed quantize operators differ from the ONNX ones only in the types they allowed first."""
    r.emit(r.node.op_type, list(r.node.input), r.node.output[0], **r.attributes("axis"))
    r.editor.replace(r.node, r.nodes)


_REWRITES: dict[tuple[str, str], Callable[[_Rewriter], None]] = {
    ("", "QLinearConv"): _convolution,
    ("", "QLinearMatMul"): _matmul,
    ("com.microsoft", "QGemm"): _gemm,
    ("com.microsoft", "QLinearAdd"): _binary("Add"),
    ("com.microsoft", "QLinearMul"): _binary("Mul"),
    ("com.microsoft", "QLinearSigmoid"): _unary("Sigmoid"),
    ("com.microsoft", "QLinearLeakyRelu"): _unary("LeakyRelu", "alpha"),
    ("com.microsoft", "QLinearGlobalAveragePool"): _pool("GlobalAveragePool"),
    ("com.microsoft", "QLinearAveragePool"): _pool("AveragePool"),
    ("com.microsoft", "QLinearConcat"): _concat,
    ("com.microsoft", "QuantizeLinear"): _default_domain,
    ("com.microsoft", "DequantizeLinear"): _default_domain,
}
