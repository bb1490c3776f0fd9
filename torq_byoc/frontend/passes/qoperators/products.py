"""Convolutions and matrix products on integers, and those whose result is real."""

from __future__ import annotations

from onnx import TensorProto

from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter


def _convolution(r: Rewriter) -> None:
    inputs = [r.triple(0), r.triple(3, axis=0)]
    if r.name(8):
        inputs.append(r.bias(8, (1, 4)))
    kept = r.attributes("kernel_shape", "strides", "pads", "dilations", "group", "auto_pad")
    r.finish_quantized(r.emit("Conv", inputs, **kept), 6, 7)


def _matmul(r: Rewriter) -> None:
    """Scales of the left operand belong to its rows, those of the right one to its columns."""
    left = r.triple(0, axis=_from_end(r, 0, 2))
    right = r.triple(3, axis=_from_end(r, 3, 1))
    r.finish_quantized(r.emit("MatMul", [left, right]), 6, 7)


def _from_end(r: Rewriter, index: int, places: int) -> int:
    return max(0, (r.rank(index) or 2) - places)


def _gemm(r: Rewriter) -> None:
    """QGemm: alpha A B + C, with the scale of C alpha times those of A and B."""
    by_rows, alpha = bool(r.attribute("transB", 0)), r.attribute("alpha", 1.0)
    inputs = [r.triple(0), r.triple(3, axis=0 if by_rows else 1)]
    if r.name(6):
        inputs.append(r.bias(6, (1, 4), alpha))
    r.emit("Gemm", inputs, **r.attributes("alpha", "transA", "transB"))
    if r.name(7):
        r.finish_quantized(r.nodes[-1].output[0], 7, 8)
    else:
        r.finish()


def _matmul_to_float(r: Rewriter) -> None:
    """MatMulIntegerToFloat: inputs a, b, their scales, their zero points, a bias of real numbers.

    What is quantized next is a product between DequantizeLinear and QuantizeLinear.  Otherwise the integers are
    multiplied as such, and scaled afterwards.
    """
    reader = r.editor.sole_reader(r.node.output[0])
    if reader is not None and reader.op_type == "QuantizeLinear" and r.editor.array(r.name(2)) is not None:
        right = r.dequantized(1, 3, 5, axis=_from_end(r, 1, 1))
        r.emit("MatMul", [r.dequantized(0, 2, 4), right])
    else:
        scaled_product(r, [r.name(0), r.name(1), r.name(4), r.name(5)], r.scale(2), r.scale(3))
    if r.name(6):
        r.emit("Add", [r.nodes[-1].output[0], r.name(6)])
    r.finish()


def scaled_product(r: Rewriter, operands: list[str], first_scale: str, second_scale: str) -> str:
    """MatMulInteger of (a, b, zero point of a, zero point of b), as float32 times both scales."""
    while operands and not operands[-1]:
        operands.pop()
    product = r.emit("Cast", [r.emit("MatMulInteger", operands)], to=TensorProto.FLOAT)
    return r.emit("Mul", [product, r.emit("Mul", [first_scale, second_scale])])


REWRITES: dict[tuple[str, str], Rewrite] = {
    ("", "QLinearConv"): Rewrite(_convolution, needs=tuple(range(8))),
    ("", "QLinearMatMul"): Rewrite(_matmul, needs=tuple(range(8))),
    ("com.microsoft", "QGemm"): Rewrite(_gemm, needs=(0, 1, 3, 4)),
    ("com.microsoft", "MatMulIntegerToFloat"): Rewrite(_matmul_to_float, needs=(0, 1, 2, 3)),
}
