"""Scales around concatenations: one for everything that only the concatenation reads."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.quantize.test_quantization import run
from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model


def network(relu: bool, extra: bool = False) -> onnx.ModelProto:
    """Two convolutions of very different ranges joined, perhaps clamped; perhaps one of them read twice."""
    rng = np.random.default_rng(4)
    values = {"wa": rng.standard_normal((4, 3, 1, 1)), "wb": rng.standard_normal((5, 3, 1, 1)) * 7}
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"]),
        helper.make_node("Conv", ["x", "wb"], ["b"]),
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
        helper.make_node("Concat", ["a", "b", "p"], ["joined"], axis=1),
    ]
    if relu:
        nodes.append(helper.make_node("Relu", ["joined"], ["y"]))
    outputs = ["y" if relu else "joined"]
    if extra:
        nodes.append(helper.make_node("Neg", ["a"], ["z"]))
        outputs.append("z")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "joined", [x], results, constants)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), {})


DATA = {"x": np.random.default_rng(2).standard_normal((8, 3, 4, 4)).astype(np.float32)}


def quantized(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, tuple[float, int]]]:
    """The QDQ model, and (scale, zero point) by the name of what is quantized."""
    result = quantize_model(model, DATA)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}
    found = {}
    for node in result.graph.node:
        if node.op_type == "QuantizeLinear":
            name = node.output[0].removesuffix("_quantized")
            found[name] = float(constants[node.input[1]]), int(constants[node.input[2]])
    return result, found


def test_branches_take_the_scale_of_what_joins_them() -> None:
    _, scales = quantized(network(relu=False))
    assert scales["a"] == scales["b"] == scales["joined"]
    assert scales["p"] == scales["x"] != scales["joined"], "a pool keeps the scale of its input"


def test_a_clamp_after_it_lends_its_scale() -> None:
    result, scales = quantized(network(relu=True))
    assert scales["a"] == scales["b"] == scales["joined"] == scales["y"]
    assert scales["y"][1] == -128, "the codes hold no negative values"
    model = network(relu=True)
    feed = {"x": DATA["x"][:1]}
    error = np.abs(run(result, feed)[0] - run(model, feed)[0])
    assert error.max() <= 2 * scales["y"][0]


def test_a_tensor_with_another_reader_keeps_its_own() -> None:
    _, scales = quantized(network(relu=False, extra=True))
    assert scales["a"] != scales["joined"] == scales["b"]
