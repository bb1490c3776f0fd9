"""Functions written out in several operators are rounded once."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.parser

from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.evaluation.float64 import float64_outputs

GELU = """s = Mul(c, half_root) e = Erf(s) g = Add(e, one) m = Mul(c, g) y = Mul(m, half)"""
CONSTANTS = (
    "<float half_root = {0.70710678}, float one = {1.0}, float half = {0.5}, float[4] four = {1.0, 2.0, 3.0, 4.0}>"
)
DATA = {"x": np.linspace(-4, 4, 64, dtype=np.float32).reshape(1, 16, 4)}


def quantized(body: str, outputs: str = "float[1,16,4] y", precision: str = "int8") -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,4] x) => ({outputs}) {CONSTANTS} {{
        c = Neg(x) {body} }}"""
    return quantize_model(prepare(onnx.parser.parse_model(text)), DATA, precision=precision)


def rounded(model: onnx.ModelProto) -> set[str]:
    return {n.output[0].removesuffix("_quantized") for n in model.graph.node if n.op_type == "QuantizeLinear"}


def test_a_written_out_gelu_is_rounded_at_its_ends() -> None:
    model = quantized(
        "t = Transpose<perm=[0,2,1]>(c) c2 = Transpose<perm=[0,1,2]>(t)" + GELU.replace("(c,", "(c2,"),
        "float[1,4,16] y",
    )
    assert {"s", "e", "g", "m"}.isdisjoint(rounded(model))
    assert "y" in rounded(model)


def test_its_codes_are_those_of_the_real_function() -> None:
    model = quantized(GELU)
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    x_scale, x_zero = float(constants["x_scale"]), int(constants["x_zero_point"])
    y_scale = float(constants["y_scale"])
    codes = np.clip(np.rint(DATA["x"].astype(np.float64) / x_scale) + x_zero, -128, 127)
    c = -(codes - x_zero) * x_scale
    gelu = c * 0.5 * (1 + np.vectorize(math.erf)(c * np.sqrt(0.5)))
    np.testing.assert_allclose(float64_outputs(model, DATA)["y"], np.rint(gelu / y_scale) * y_scale, atol=1e-6)


def test_what_two_results_share_is_rounded() -> None:
    """The CPU and the NPU would otherwise both need the value between."""
    model = quantized("e = Exp(c) y = Add(e, one) z = Mul(e, half)", "float[1,16,4] y, float[1,16,4] z")
    assert {"e", "y", "z"} <= rounded(model)


def test_outputs_constants_of_a_channel_and_wide_codes_end_a_function() -> None:
    assert {"e", "y"} <= rounded(quantized("e = Erf(c) y = Mul(e, half)", "float[1,16,4] y, float[1,16,4] e"))
    assert "e" in rounded(quantized("e = Erf(c) y = Mul(e, four)"))
    assert "e" in rounded(quantized("e = Erf(c) y = Mul(e, half)", precision="int16"))
