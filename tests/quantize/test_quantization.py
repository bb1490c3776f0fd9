"""The quantizer writes standard QDQ ONNX that onnxruntime runs, close to the float model."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.errors import CalibrationError
from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)


def small_network(seed: int, opset: int = 13) -> onnx.ModelProto:
    """conv relu, conv + shortcut relu, pool, flatten, gemm, with outlier channels and a dead one."""
    rng = np.random.default_rng(seed)
    first = rng.standard_t(3, (8, 3, 3, 3)) * 0.3
    first[2] *= 12
    first[5] *= 1e-9
    values = {
        "w1": first,
        "b1": np.linspace(-2, 5, 8),
        "w2": rng.standard_t(3, (8, 8, 3, 3)) * 0.1,
        "b2": rng.standard_normal(8),
        "w3": rng.standard_normal((128, 5)) * 0.1,
        "b3": rng.standard_normal(5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["s"]),
        helper.make_node("Relu", ["s"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "small", [x], [y], constants)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), {})


def calibration(seed: int = 0, count: int = 16) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((count, 3, 8, 8)).astype(np.float32)}


@pytest.mark.parametrize(("precision", "least"), [("int8", 30.0), ("int16", 38.0)])
@pytest.mark.parametrize("opset", [11, 13, 17])
def test_quantized_network_is_close_to_float(precision: str, least: float, opset: int) -> None:
    model, data = small_network(3, opset), calibration()
    quantized = quantize_model(model, data, precision=precision)
    onnx.checker.check_model(quantized, full_check=True)
    wanted, found = [], []
    for sample in data["x"]:
        wanted.append(run(model, {"x": sample[None]})[0])
        found.append(run(quantized, {"x": sample[None]})[0])
    error = np.array(wanted) - np.array(found)
    assert 10 * np.log10(np.square(wanted).mean() / np.square(error).mean()) >= least


def test_weights_have_a_scale_a_channel_and_no_zero_point() -> None:
    quantized = quantize_model(small_network(1), calibration())
    constants = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    node = next(n for n in quantized.graph.node if n.op_type == "Conv")
    dequantize = next(n for n in quantized.graph.node if n.output[0] == node.input[1])
    codes, scale, zero = (constants[name] for name in dequantize.input)
    assert codes.dtype == np.int8 and scale.shape == (8,) and not zero.any()
    assert np.abs(codes.astype(int)).reshape(8, -1).max(axis=1)[[0, 1, 2, 3]].tolist() == [127] * 4


def test_dead_channel_keeps_its_bias_inside_int32() -> None:
    quantized = quantize_model(small_network(1), calibration())
    constants = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    node = next(n for n in quantized.graph.node if n.op_type == "Conv")
    dequantize = next(n for n in quantized.graph.node if n.output[0] == node.input[2])
    codes, scale = (constants[name] for name in dequantize.input[:2])
    assert codes.dtype == np.int32
    np.testing.assert_allclose(codes * scale.astype(np.float64), np.linspace(-2, 5, 8), atol=1e-2)


def test_clamps_share_the_quantization_of_their_producer() -> None:
    quantized = quantize_model(small_network(1), calibration())
    producer = {name: node for node in quantized.graph.node for name in node.output}
    for node in quantized.graph.node:
        if node.op_type == "Relu":
            assert producer[node.input[0]].op_type in ("Conv", "Add")


def test_pool_keeps_the_scale_of_its_input() -> None:
    quantized = quantize_model(small_network(1), calibration())
    constants = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    producer = {name: node for node in quantized.graph.node for name in node.output}
    reader = {name: node for node in quantized.graph.node for name in node.input}
    pool = next(n for n in quantized.graph.node if n.op_type == "MaxPool")
    before, after = producer[pool.input[0]], reader[pool.output[0]]
    assert [constants[n].tolist() for n in before.input[1:]] == [constants[n].tolist() for n in after.input[1:]]


def test_two_runs_give_the_same_bytes() -> None:
    first, second = (quantize_model(small_network(2), calibration()).SerializeToString() for _ in range(2))
    assert first == second


def test_inputs_and_outputs_keep_names_and_types() -> None:
    model = small_network(0)
    quantized = quantize_model(model, calibration())
    assert [v.name for v in quantized.graph.input] == ["x"]
    assert [(v.name, v.type.tensor_type.elem_type) for v in quantized.graph.output] == [("y", TensorProto.FLOAT)]


def test_unknown_method_is_named() -> None:
    with pytest.raises(CalibrationError, match="no calibration method 'entropy9'"):
        quantize_model(small_network(0), calibration(), method="entropy9")


def test_calibration_is_required() -> None:
    with pytest.raises(CalibrationError, match="needs calibration data"):
        quantize_model(small_network(0), None)


def test_names_that_the_model_uses_already() -> None:
    """A constant called like the scale that we would add must keep its value and its reader."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])
    nodes = [helper.make_node("Mul", ["x", "x_scale"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    taken = [numpy_helper.from_array(np.linspace(-3, 3, 8, dtype=np.float32), "x_scale")]
    graph = helper.make_graph(nodes, "taken", [x], [y], taken)
    model = prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), {})
    data = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    quantized = quantize_model(model, data)
    feed = {"x": data["x"][:1]}
    assert np.abs(run(quantized, feed)[0] - run(model, feed)[0]).max() < 0.1


def test_what_no_input_reaches_is_no_activation() -> None:
    """A table computed from constants stays float: quantizing it would be work at every inference."""
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6])
    nodes = [
        helper.make_node("RandomNormal", [], ["table"], shape=[10, 6], seed=1.0),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Relu", ["rows"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "table", [ids], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    quantized = quantize_model(model, {"ids": np.arange(8).reshape(2, 4)})
    gathered = next(node for node in quantized.graph.node if node.op_type == "Gather")
    assert gathered.input[0] == "table"


def test_constant_outputs_survive() -> None:
    model = small_network(0)
    model.graph.output.add().CopyFrom(helper.make_tensor_value_info("k", TensorProto.FLOAT, [2]))
    model.graph.initializer.add().CopyFrom(numpy_helper.from_array(np.array([1, 2], np.float32), "k"))
    quantized = quantize_model(model, calibration())
    assert np.array_equal(run(quantized, {"x": calibration()["x"][:1]})[1], [1, 2])
