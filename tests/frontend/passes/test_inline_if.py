"""If nodes become straight-line code with the same results, whichever branch is taken."""

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

from torq_byoc.frontend import prepare


def branch(name: str, op: str, shape: list[int | str]) -> object:
    result = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, shape)
    return helper.make_graph([helper.make_node(op, ["x"], [f"{name}_out"])], name, [], [result])


def model(then_shape: list[int | str], else_shape: list[int | str]) -> ModelProto:
    node = helper.make_node(
        "If",
        ["c"],
        ["y"],
        name="choice",
        then_branch=branch("yes", "Exp", then_shape),
        else_branch=branch("no", "Neg", else_shape),
    )
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([node], "g", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("taken", [True, False])
def test_run_time_condition_becomes_a_choice(taken: bool) -> None:
    original = model([2, 3], [2, 3])
    prepared = prepare(original, {})
    assert sorted(node.op_type for node in prepared.graph.node) == ["Exp", "Neg", "Where"]
    feed = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "c": np.array(taken)}
    expected, found = (
        onnxruntime.InferenceSession(m.SerializeToString()).run(None, feed)[0] for m in (original, prepared)
    )
    assert np.array_equal(expected, found)


def test_branches_of_unlike_declared_shapes_stay() -> None:
    prepared = prepare(model([2, 3], ["n", 3]), {})
    assert [node.op_type for node in prepared.graph.node] == ["If"]
