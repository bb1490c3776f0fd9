"""Zero points of what PRelu reads: 0 where the range is nearly symmetric and nobody else reads it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model

SLOPES = np.array([0.25, -0.5, 1.5], np.float32).reshape(3, 1, 1)


def network(high: float, *, op: str = "PRelu", extra: bool = False) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A convolution that passes its input on, in -4 .. ``high``, then PRelu or LeakyRelu, perhaps another reader."""
    inputs = ["c", "slopes"] if op == "PRelu" else ["c"]
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node(op, inputs, ["y"])]
    outputs = ["y"]
    if extra:
        nodes.append(helper.make_node("Neg", ["c"], ["z"]))
        outputs.append("z")
    values = {"w": np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1), "slopes": SLOPES}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 4, 4]) for name in outputs]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "net", [x], results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    data = np.linspace(-4, high, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    return prepare(model, {}), {"x": data}


def parameters(model: onnx.ModelProto, data: dict[str, np.ndarray], precision: str = "int8") -> tuple[float, int]:
    """Scale and zero point of the convolution's result."""
    result = quantize_model(model, data, precision=precision)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}
    (node,) = [n for n in result.graph.node if n.op_type == "QuantizeLinear" and n.output[0].startswith("c_quantized")]
    return float(constants[node.input[1]]), int(constants[node.input[2]])


@pytest.mark.parametrize("op", ["PRelu", "LeakyRelu"])
@pytest.mark.parametrize("high", [3.7, 4.0, 4.3])
def test_a_nearly_symmetric_range_gets_zero_point_0_and_loses_nothing(op: str, high: float):
    scale, zero_point = parameters(*network(high, op=op))
    assert zero_point == 0
    assert scale * 127 >= high - scale / 2
    assert scale * 128 >= 4 - scale / 2
    assert scale <= (4 + high) / 255 * (1 + 1 / 16) * (1 + 1e-6)


def test_a_lopsided_range_keeps_its_precision():
    scale, zero_point = parameters(*network(9.0))
    assert zero_point != 0
    assert scale == pytest.approx(13 / 255, rel=1e-3)


def test_another_reader_keeps_the_range_as_it_is():
    scale, zero_point = parameters(*network(4.3, extra=True))
    assert zero_point != 0
    assert scale == pytest.approx(8.3 / 255, rel=1e-3)


def test_int16_is_symmetric_anyway():
    scale, zero_point = parameters(*network(4.3), precision="int16")
    assert zero_point == 0
    assert scale == pytest.approx(4.3 / 32767, rel=1e-3)
