"""Small models with a known defect each."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.frontend import prepare

Constants = dict[str, np.ndarray]


def model(
    nodes: list[onnx.NodeProto],
    constants: Constants,
    shape: tuple[int, ...] = (1, 4),
    *,
    name: str = "x",
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """A prepared model with one float input."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))


def dense_qdq(
    codes: np.ndarray,
    *,
    bias: np.ndarray | None = None,
    input_scale: float = 0.1,
    input_zero: int = 0,
    weight_scale: float | np.ndarray = 0.01,
    output_scale: float = 0.5,
    code_type: type = np.int8,
) -> onnx.ModelProto:
    """y = quantized(x @ (codes * weight scale) + bias codes); codes are [inputs, channels]."""
    scales = np.broadcast_to(np.float32(weight_scale), codes.shape[1])
    constants: Constants = {
        "xs": np.float32(input_scale),
        "xz": code_type(input_zero),
        "w": codes.astype(np.int8),
        "ws": scales.astype(np.float32),
        "wz": np.zeros(codes.shape[1], np.int8),
        "ys": np.float32(output_scale),
        "yz": np.int8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "quantize"),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "dequantize"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], "weights", axis=1),
    ]
    operands = ["xd", "wd"]
    if bias is not None:
        constants |= {"b": bias.astype(np.int32), "bs": (np.float32(input_scale) * scales).astype(np.float32)}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], "bias", axis=0))
        operands.append("bd")
    nodes += [
        helper.make_node("Gemm", operands, ["p"], "dense"),
        helper.make_node("QuantizeLinear", ["p", "ys", "yz"], ["yq"], "requantize"),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], "result"),
    ]
    return model(nodes, constants, (1, codes.shape[0]))
