"""Small float models whose 8-bit forms go wrong for a known reason."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.frontend import prepare

SIZE = 16


def _conv(source: str, weight: str, result: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, weight], [result], name=result, pads=[1] * 4)


def _model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], inputs: int, outputs: int) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inputs, SIZE, SIZE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, outputs, SIZE, SIZE])
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "planned", [x], [y], constants)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), {})


def _weights(rng: np.random.Generator, outputs: int, inputs: int, gain: float = 1.0) -> np.ndarray:
    return rng.standard_normal((outputs, inputs, 3, 3)) / np.sqrt(9 * inputs) * gain


def residual_mismatch() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """y = conv(x + small branch of x), channels of x of very unlike sizes."""
    rng = np.random.default_rng(0)
    nodes = [
        _conv("x", "w1", "a"),
        helper.make_node("Relu", ["a"], ["b"], name="b"),
        _conv("b", "w2", "c"),
        helper.make_node("Add", ["c", "x"], ["d"], name="d"),
        _conv("d", "w3", "y"),
    ]
    weights = {"w1": _weights(rng, 16, 16), "w2": _weights(rng, 16, 16, 0.02), "w3": _weights(rng, 16, 16)}
    data = rng.standard_normal((4, 16, SIZE, SIZE)) * np.exp(rng.standard_normal((1, 16, 1, 1)))
    return _model(nodes, weights, 16, 16), {"x": data.astype(np.float32)}


def heavy_tail() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """conv relu conv of a heavy-tailed input."""
    rng = np.random.default_rng(0)
    nodes = [_conv("x", "w1", "a"), helper.make_node("Relu", ["a"], ["b"], name="b"), _conv("b", "w2", "y")]
    weights = {"w1": _weights(rng, 32, 16), "w2": _weights(rng, 16, 32)}
    return _model(nodes, weights, 16, 16), {"x": rng.standard_t(2.5, (4, 16, SIZE, SIZE)).astype(np.float32)}


def joined() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A concatenation of two convolutions behind a pool, then a clamp and a convolution."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], name="p", kernel_shape=[3, 3], pads=[1] * 4),
        _conv("p", "w1", "a"),
        _conv("x", "w2", "b"),
        helper.make_node("Concat", ["a", "b"], ["j"], name="j", axis=1),
        helper.make_node("Relu", ["j"], ["r"], name="r"),
        _conv("r", "w3", "y"),
    ]
    weights = {"w1": _weights(rng, 3, 4), "w2": _weights(rng, 5, 4), "w3": _weights(rng, 2, 8)}
    return _model(nodes, weights, 4, 2), {"x": rng.standard_normal((2, 4, SIZE, SIZE)).astype(np.float32)}


def depthwise() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A depthwise convolution of channels of very unlike sizes, and a convolution."""
    rng = np.random.default_rng(2)
    sizes = np.exp2(-np.arange(8.0)).reshape(8, 1, 1, 1)
    nodes = [
        _conv("x", "w1", "a"),
        helper.make_node("Relu", ["a"], ["b"], name="b"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="c", pads=[1] * 4, group=8),
        _conv("c", "w3", "y"),
    ]
    weights = {"w1": _weights(rng, 8, 4) * sizes, "w2": _weights(rng, 8, 1) / sizes, "w3": _weights(rng, 4, 8)}
    return _model(nodes, weights, 4, 4), {"x": rng.standard_normal((4, 4, SIZE, SIZE)).astype(np.float32)}
