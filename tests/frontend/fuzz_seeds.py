"""Small models whose bytes are damaged by the fuzz tests: between them they reach every check and every pass."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.frontend.onnx_tools import graph_model, node

F32 = np.float32


def seeds() -> dict[str, bytes]:
    """Name -> serialised model."""
    return {name: build().SerializeToString() for name, build in _BUILDERS.items()}


def _float_net():
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(F32),
        **{k: np.full(4, 0.5, F32) for k in ("g", "b", "m", "v")},
        "shape": np.array([1, -1], np.int64),
        "fc": rng.standard_normal((5, 64)).astype(F32),
    }
    nodes = [
        node("Conv", ["x", "w"], "c", "conv", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], "n", "norm"),
        node("Clip", ["n"], "r", "clip"),
        node("Reshape", ["r", "shape"], "f", "flatten"),
        node("Gemm", ["f", "fc"], "y", "dense", transB=1, alpha=0.5),
    ]
    return graph_model(nodes, {"x": [1, 3, 8, 8]}, ["y"], constants)


def _shape_net():
    nodes = [
        node("Shape", ["x"], "s"),
        node("Gather", ["s", "i"], "n"),
        node("ConstantOfShape", ["n"], "zeros"),
        node("Expand", ["zeros", "s"], "e"),
        node("Slice", ["x", "i", "e1", "i"], "part"),
        node("Tile", ["part", "reps"], "t"),
        node("Pad", ["e", "pads"], "p"),
        node("Range", ["a", "z", "a"], "r"),
        node("Add", ["p", "r"], "pr"),
        node("ReduceMax", ["pr"], "m"),
        node("Add", ["t", "m"], "y"),
    ]
    constants = {
        "i": np.array([1], np.int64),
        "e1": np.array([3], np.int64),
        "reps": np.array([2, 1], np.int64),
        "pads": np.array([0, 0, 1, 2], np.int64),
        "a": np.array(1, F32),
        "z": np.array(7, F32),
    }
    return graph_model(nodes, {"x": [2, 4]}, ["y"], constants)


def _quantized_net():
    rng = np.random.default_rng(1)
    constants = {
        "xs": np.array(0.05, F32),
        "xz": np.array(3, np.int8),
        "w": rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.array([0.01, 0.02, 0.03, 0.04], F32),
        "wz": np.zeros(4, np.int8),
        "ys": np.array(0.1, F32),
        "b": rng.integers(-999, 999, 4).astype(np.int32),
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], "q", "quantize"),
        node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "xz", "b"], "c", "conv", pads=[1, 1, 1, 1]),
        node("DequantizeLinear", ["c", "ys", "xz"], "d", "dequantize"),
        node("Mul", ["d", "d"], "y", "square"),
    ]
    return graph_model(nodes, {"x": [1, 3, 5, 5]}, ["y"], constants)


def _integer_net():
    """Operators on integers, of the contributed domain among them."""
    rng = np.random.default_rng(2)
    constants = {
        **{"s": np.array(0.05, F32), "z": np.array(7, np.uint8), "f": np.array(0.1, F32)},
        **{"w": rng.integers(-9, 9, (5, 6)).astype(np.int8), "ws": np.full(6, 0.02, F32), "wz": np.zeros(6, np.int8)},
        **{"b": rng.integers(-99, 99, 6).astype(np.int32), "p": rng.integers(0, 255, (4, 1, 3)).astype(np.uint8)},
        **{"ps": np.full(4, 0.1, F32), "zero": np.array(0, np.int8), "w6": np.ones((6, 18), np.int8)},
        **{"b18": np.zeros(18, F32), "heads": np.array([1, 2, 6], np.int64)},
    }

    def contributed(op, inputs, output, **attributes):
        return helper.make_node(op, inputs, [output], output, domain="com.microsoft", **attributes)

    nodes = [
        contributed("QGemm", ["x", "s", "z", "w", "ws", "wz", "b", "s", "z"], "g", alpha=0.5),
        contributed("QLinearAdd", ["g", "s", "z", "g", "s", "z", "s", "z"], "a"),
        contributed("QLinearSoftmax", ["a", "s", "z", "s", "z"], "m", axis=1, opset=13),
        contributed("QLinearReduceMean", ["m", "s", "z", "s", "z"], "r", axes=[0], keepdims=1),
        contributed("QLinearConcat", ["s", "z", "m", "s", "z", "r", "s", "z"], "c", axis=0),
        node("Reshape", ["a", "heads"], "h", "heads_first"),
        contributed("QAttention", ["h", "w6", "b18", "s", "s", "", "z", "zero"], "t", num_heads=2),
        contributed("MatMulNBits", ["t", "p", "ps"], "n", K=6, N=4, bits=4, block_size=16),
        node("DynamicQuantizeLinear", ["n"], ["dq", "ds", "dz"], "dynamic"),
        node("MatMulInteger", ["c", "w7", "z", "zero"], "i", "product"),
        node("Cast", ["i"], "y", "cast", to=1),
        node("DequantizeLinear", ["dq", "ds", "dz"], "y2", "back"),
    ]
    constants["w7"] = np.ones((6, 2), np.int8)
    constants["p"] = rng.integers(0, 255, (4, 1, 8)).astype(np.uint8)
    return graph_model(nodes, {"x": [2, 5]}, ["y", "y2"], constants, dtypes={"x": 2}, domains=["com.microsoft"])


def _codes_net():
    """4-bit weights in blocks, unsigned 16-bit codes."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q", "quantize"),
        node("DequantizeLinear", ["q", "s", "z"], "d", "dequantize"),
        node("DequantizeLinear", ["w", "ws"], "wd", "weights", axis=0, block_size=4),
        node("MatMul", ["d", "wd"], "m", "product"),
        node("QuantizeLinear", ["m", "s", "z4"], "p", "to_4_bits"),
        node("DequantizeLinear", ["p", "s", "z4"], "y", "back"),
    ]
    constants = {"s": np.array(0.05, F32), "z": np.array(9999, np.uint16), "ws": np.full((2, 3), 0.1, F32)}
    model = graph_model(nodes, {"x": [2, 8]}, ["y"], constants, opset=21)
    model.ir_version = 10
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [8, 3], [1, -2, 3, -4] * 6))
    model.graph.initializer.append(helper.make_tensor("z4", TensorProto.UINT4, [], [3]))
    return model


def _branch_net():
    then = helper.make_graph([node("Relu", ["x"], "t")], "then", [], [helper.make_tensor_value_info("t", 1, [2, 2])])
    other = helper.make_graph([node("Neg", ["x"], "t")], "else", [], [helper.make_tensor_value_info("t", 1, [2, 2])])
    nodes = [
        node("Equal", ["k", "k"], "cond"),
        node("If", ["cond"], "a", "branch", then_branch=then, else_branch=other),
        node("Split", ["a"], ["p", "q"], "split", axis=1, num_outputs=2),
        node("Sum", ["p", "q", "p"], "y", "sum"),
    ]
    return graph_model(nodes, {"x": [2, 2]}, ["y"], {"k": np.array(3, np.int64)}, opset=18)


_BUILDERS = {
    "float": _float_net,
    "shape": _shape_net,
    "quantized": _quantized_net,
    "integers": _integer_net,
    "codes": _codes_net,
    "branch": _branch_net,
}
