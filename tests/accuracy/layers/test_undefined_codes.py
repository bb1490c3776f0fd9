"""Quotients by codes of zero: what the check holds them against, and what it says where they have no value."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import torq_byoc
from torq_byoc.quantize.evaluation.float64 import float64_outputs

OUT_SCALE, OUT_ZERO = 0.5, -7


def _division(divisor: type) -> onnx.ModelProto:
    """y = quantized(x / w), x int8; the divisor's type decides whether the NPU or the CPU divides."""
    constants = {
        "xs": np.float32(0.25),
        "xz": np.int8(3),
        "ws": np.float32(0.5),
        "wz": divisor(0),
        "ys": np.float32(OUT_SCALE),
        "yz": np.int8(OUT_ZERO),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "quantize_x"),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "read_x"),
        helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], "quantize_w"),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], "read_w"),
        helper.make_node("Div", ["xd", "wd"], ["q"], "quotient"),
        helper.make_node("QuantizeLinear", ["q", "ys", "yz"], ["yq"], "quantize_y"),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], "read_y"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 6)) for name in "xwy"]
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "division", values[:2], values[2:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


X = np.array([[1.0, -1.0, 0.25, -0.25, 2.0, 0.0]], np.float32)
ZERO = np.array([[0.0, 0.0, 0.2, 0.2, 1.0, 0.0]], np.float32)
"""Rounds to zero but once; the last is divided by nothing else and is zero itself."""
WANTED = OUT_SCALE * (np.array([[127, -128, 127, -128, 4 + OUT_ZERO, OUT_ZERO]]) - OUT_ZERO)


@pytest.mark.parametrize("divisor", [np.int8, np.uint8, np.int16])
def test_quotients_by_zero_saturate_wherever_they_are_computed(divisor: type) -> None:
    model = _division(divisor)
    feeds = {"x": X, "w": ZERO}
    np.testing.assert_array_equal(torq_byoc.compile(model).run(feeds)["y"], WANTED)
    np.testing.assert_array_equal(float64_outputs(model, feeds)["y"], WANTED)


@pytest.mark.parametrize("divisor", [np.int8, np.int16])
def test_the_check_blames_nobody_for_them_and_names_what_has_no_value(divisor: type) -> None:
    result = torq_byoc.check_model(_division(divisor), {"x": X, "w": ZERO})
    assert result.deviations == ()
    assert any("NaN, for which there is no code" in note and "q (1)" in note for note in result.notes)
    (finding,) = [one for one in result.lint if one.rule == "non-finite"]
    assert "quotient" in finding.where and "for the 1 that are NaN" in finding.what


def test_nothing_is_said_of_infinity() -> None:
    result = torq_byoc.check_model(_division(np.int8), {"x": X[:, :5].repeat([2, 1, 1, 1, 1], 1), "w": ZERO * 0})
    assert result.deviations == () and not any("NaN" in note for note in result.notes)
