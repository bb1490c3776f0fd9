"""Integer operators and their QDQ form give the same integers in onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx_tools import graph_model, node, ops, run_reference
from torq_byoc.frontend import prepare

F32 = np.float32


def tensors(weight_shape, channels, per_channel, dtype):
    rng = np.random.default_rng(5)
    count = channels if per_channel else ()
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return {
        "xs": np.array(0.04, F32),
        "xz": np.array(high - 7, dtype),  # a zero point near the edge
        "w": rng.integers(low, high + 1, weight_shape).astype(dtype),
        "ws": rng.uniform(0.002, 0.02, count).astype(F32),
        "wz": np.full(count, (low + high + 1) // 2, dtype) if per_channel else np.array(low + 100, dtype),
        "ys": np.array(0.3, F32),
        "yz": np.array(low + 5, dtype),
        "b": rng.integers(-4000, 4000, channels).astype(np.int32),
    }


def assert_one_step(model, x_shape, dtype, bound=1):
    """The result is an integer tensor; float rounding may move single values by one step, and no more than a few."""
    result = prepare(model)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.random.default_rng(8).integers(low, high + 1, x_shape).astype(dtype)
    wanted, got = run_reference(model, {"x": x})[0], run_reference(result, {"x": x})[0]
    assert got.dtype == wanted.dtype == dtype and got.shape == wanted.shape
    difference = np.abs(got.astype(int) - wanted.astype(int))
    assert difference.max() <= bound and (difference > 0).mean() < 0.02
    assert len(np.unique(wanted)) > 8  # the data does exercise the range
    return result


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(dtype, per_channel, bias):
    held = tensors((6, 2, 3, 3), 6, per_channel, dtype)
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"] + (["b"] if bias else [])
    kind = TensorProto.UINT8 if dtype == np.uint8 else TensorProto.INT8
    model = graph_model(
        [node("QLinearConv", inputs, "y", "conv", pads=[1, 0, 2, 1], strides=[2, 1], group=2)],
        {"x": [1, 4, 7, 6]},
        ["y"],
        held,
        dtypes={"x": kind, "y": kind},
    )
    result = assert_one_step(model, [1, 4, 7, 6], dtype)
    expected = ["DequantizeLinear"] * (3 if bias else 2) + ["Conv", "QuantizeLinear"]
    assert ops(result) == expected
    assert result.graph.node[-1].name == "conv"


def test_matmul():
    held = tensors((2, 5, 6), 6, False, np.uint8)
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    kind = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    model = graph_model([node("QLinearMatMul", inputs, "y")], {"x": [2, 3, 5]}, ["y"], held, dtypes=kind)
    assert ops(assert_one_step(model, [2, 3, 5], np.uint8)) == [
        "DequantizeLinear",
        "DequantizeLinear",
        "MatMul",
        "QuantizeLinear",
    ]


CONTRIBUTED = {
    "QLinearAdd": (
        ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"],
        {},
        ["DequantizeLinear"] * 2 + ["Add", "QuantizeLinear"],
    ),
    "QLinearMul": (
        ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"],
        {},
        ["DequantizeLinear"] * 2 + ["Mul", "QuantizeLinear"],
    ),
    "QLinearSigmoid": (["x", "xs", "xz", "s1", "yz"], {}, ["DequantizeLinear", "Sigmoid", "QuantizeLinear"]),
    "QLinearLeakyRelu": (
        ["x", "xs", "xz", "ys", "yz"],
        {"alpha": 0.2},
        ["DequantizeLinear", "LeakyRelu", "QuantizeLinear"],
    ),
    "QLinearGlobalAveragePool": (
        ["x", "xs", "xz", "xs", "xz"],
        {"channels_last": 0},
        ["DequantizeLinear", "GlobalAveragePool", "QuantizeLinear"],
    ),
    "QLinearConcat": (
        ["ys", "yz", "x", "xs", "xz", "w", "ws", "wz"],
        {"axis": 1},
        ["DequantizeLinear"] * 2 + ["Concat", "QuantizeLinear"],
    ),
}


@pytest.mark.parametrize("op", CONTRIBUTED)
def test_contributed_operators(op):
    inputs, attrs, expected = CONTRIBUTED[op]
    held = {**tensors((1, 4, 5, 5), 4, False, np.uint8), "s1": np.array(0.01, F32)}
    nodes = [helper.make_node(op, inputs, ["y"], name="n", domain="com.microsoft", **attrs)]
    kind = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    model = graph_model(nodes, {"x": [1, 4, 5, 5]}, ["y"], held, dtypes=kind, domains=["com.microsoft"])
    result = prepare(model)
    x = np.random.default_rng(8).integers(0, 256, (1, 4, 5, 5)).astype(np.uint8)
    wanted, got = run_reference(model, {"x": x})[0], run_reference(result, {"x": x})[0]
    assert ops(result) == expected
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1 and len(np.unique(wanted)) > 2


@pytest.mark.parametrize("by_rows", [0, 1])
def test_gemm(by_rows):
    held = tensors((6, 5) if by_rows else (5, 6), 6, True, np.int8)
    nodes = [
        helper.make_node(
            "QGemm", ["x", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"], ["y"], domain="com.microsoft", transB=by_rows
        )
    ]
    kind = {"x": TensorProto.INT8, "y": TensorProto.INT8}
    model = graph_model(nodes, {"x": [3, 5]}, ["y"], held, dtypes=kind, domains=["com.microsoft"])
    result = prepare(model)
    x = np.random.default_rng(8).integers(-128, 128, (3, 5)).astype(np.int8)
    got = run_reference(result, {"x": x})[0]
    # Computed by hand: onnxruntime's QGemm needs CPU features that not every machine has.
    weight = held["w"].astype(np.int64).T if by_rows else held["w"].astype(np.int64)
    acc = (x.astype(np.int64) - int(held["xz"])) @ weight + held["b"]
    wanted = np.clip(np.round(acc * (0.04 * held["ws"].astype(float)) / 0.3) + int(held["yz"]), -128, 127)
    assert np.abs(got - wanted).max() <= 1
    assert ops(result) == ["DequantizeLinear"] * 3 + ["Gemm", "QuantizeLinear"]
