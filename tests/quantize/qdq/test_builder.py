"""Names, constants and the finished model of the QDQ builder."""

from __future__ import annotations

import numpy as np
import onnx

from tests.frontend.onnx_tools import run_reference
from tests.quantize.models import parsed
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.qdq.builder import QdqBuilder


def test_names_of_the_model_are_left_to_it() -> None:
    builder = QdqBuilder({"x", "x_scale", "x_scale_"})
    assert builder.own("x_scale") == "x_scale__" == builder.own("x_scale")
    assert builder.own("y_scale") == "y_scale"


def test_codes_and_stored_codes_compute_what_they_stand_for() -> None:
    source = parsed("y = Add(x, k)", "float[1,3] x", constants={"k": np.zeros(3), "unused": np.zeros(2)})
    builder = QdqBuilder({"x", "y", "k"})
    coarse = TensorQuantization(np.float32(0.5), 1, "int8")
    builder.quantize("x", "x", coarse)
    floats = builder.dequantize("x", coarse, builder.own("x_for_y"))
    codes, scales = np.array([[2, 4, -6]], np.int8), np.array([1.0, 0.25, 0.5], np.float32)
    stored = builder.dequantized_constant("k", codes, scales, 1)
    builder.nodes.append(onnx.helper.make_node("Add", [floats, stored], ["y"], name="add"))
    model = builder.model(source)
    onnx.checker.check_model(model, full_check=True)
    assert {tensor.name for tensor in model.graph.initializer}.isdisjoint({"k", "unused"})
    (found,) = run_reference(model, {"x": np.array([[0.3, -70.0, 1.0]], np.float32)})
    np.testing.assert_array_equal(found, [[0.5 + 2.0, -64.5 + 1.0, 1.0 - 3.0]])
