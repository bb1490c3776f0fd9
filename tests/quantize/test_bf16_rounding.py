"""What a float operator of a mixed model computes on the NPU, in the judge's arithmetic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.quantize.bf16_rounding import with_bf16_rounding
from torq_byoc.quantize.evaluation.float64 import float64_outputs


def _bf16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def test_operands_and_results_are_rounded():
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal((5, 5)).astype(np.float32) for _ in range(2))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 5])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="first"),
        helper.make_node("MatMul", ["y", "v"], ["z"], name="second"),
    ]
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")]
    graph = helper.make_graph(nodes, "two", [x], [y, z], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feed = {"x": rng.standard_normal((2, 5)).astype(np.float32)}
    assert with_bf16_rounding(model, ()) is model
    rounded = with_bf16_rounding(model, {"first"})
    onnx.checker.check_model(rounded)
    found = float64_outputs(rounded, feed)
    wanted = _bf16(_bf16(feed["x"]) @ _bf16(w))
    np.testing.assert_array_equal(found["y"], wanted)
    np.testing.assert_allclose(found["z"], wanted @ v.astype(np.float64), rtol=1e-12)
