"""Operators that find the scale of their data at run time.

DynamicQuantizeLinear is written out as the standard defines it: uint8 codes for the range of the data with zero in
it.  Data that are all zero, for which that definition divides zero by zero, have scale 1.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from torq_byoc.frontend.passes.qoperators.products import scaled_product
from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter

_LAST_CODE = 255.0


def quantization_at_run_time(r: Rewriter, data: str, outputs: tuple[str | None, str | None, str | None]) -> list[str]:
    """Emit codes, scale and zero point of ``data``, under the given names where there are any."""
    zero = r.constant(np.array(0, np.float32), "zero")
    last = r.constant(np.array(_LAST_CODE, np.float32), "last")
    low = r.emit("Min", [r.emit("ReduceMin", [data], keepdims=0), zero])
    high = r.emit("Max", [r.emit("ReduceMax", [data], keepdims=0), zero])
    span = r.emit("Sub", [high, low])
    one = r.constant(np.array(1, np.float32), "one")
    scale = r.emit("Where", [r.emit("Equal", [span, zero]), one, r.emit("Div", [span, last])], outputs[1])
    place = r.emit("Sub", [zero, r.emit("Div", [low, scale])])
    code = r.emit("Round", [r.emit("Clip", [place, zero, last])])
    zero_point = r.emit("Cast", [code], outputs[2], to=TensorProto.UINT8)
    return [r.emit("QuantizeLinear", [data, scale, zero_point], outputs[0]), scale, zero_point]


def _dynamic_quantize(r: Rewriter) -> None:
    names = [*r.node.output, "", ""][:3]
    quantization_at_run_time(r, r.name(0), (names[0] or None, names[1] or None, names[2] or None))
    r.editor.replace(r.node, r.nodes)


def _dynamic_matmul(r: Rewriter) -> None:
    """DynamicQuantizeMatMul: inputs a, b, scale of b, zero point of b, a bias of real numbers."""
    codes, scale, zero_point = quantization_at_run_time(r, r.name(0), (None, None, None))
    scaled_product(r, [codes, r.name(1), zero_point, r.name(3)], scale, r.scale(2))
    if r.name(4):
        r.emit("Add", [r.nodes[-1].output[0], r.name(4)])
    r.finish()


REWRITES: dict[tuple[str, str], Rewrite] = {
    ("", "DynamicQuantizeLinear"): Rewrite(_dynamic_quantize, needs=(0,)),
    ("com.microsoft", "DynamicQuantizeMatMul"): Rewrite(_dynamic_matmul, needs=(0, 1, 2)),
}
