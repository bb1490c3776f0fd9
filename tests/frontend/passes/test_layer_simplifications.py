"""What moves into layers: normalizations, factors, transpositions; operators written out for them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.onnx_tools import constants, graph_model, node
from tests.frontend.passes.tools import F32, checked, weights


def norm_parameters(channels, seed=3):
    rng = np.random.default_rng(seed)
    gamma = rng.uniform(-2, 2, channels)
    gamma[0] = 0.0  # a pruned channel
    return {
        "g": gamma.astype(F32),
        "b": rng.standard_normal(channels).astype(F32),
        "m": (rng.standard_normal(channels) * 50).astype(F32),
        "v": rng.uniform(1e-4, 9, channels).astype(F32),
    }


NORM = ["g", "b", "m", "v"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "layer", ["Conv", "depthwise", "ConvTranspose", "grouped ConvTranspose", "Gemm", "Gemm transposed"]
)
def test_batch_norm_moves_into_the_layer(layer, bias):
    shapes = {
        "Conv": ((6, 4, 3, 3), [2, 4, 5, 5], 6, {}),
        "depthwise": ((4, 1, 3, 3), [2, 4, 5, 5], 4, {"group": 4}),
        "ConvTranspose": ((4, 6, 3, 3), [2, 4, 5, 5], 6, {"strides": [2, 2]}),
        "grouped ConvTranspose": ((4, 3, 3, 3), [2, 4, 5, 5], 6, {"group": 2}),
        "Gemm": ((4, 6), [2, 4], 6, {}),
        "Gemm transposed": ((6, 4), [2, 4], 6, {"transB": 1}),
    }
    shape, x, channels, attrs = shapes[layer]
    op = next(o for o in ("ConvTranspose", "Conv", "Gemm") if o in layer.replace("depthwise", "Conv"))
    inputs = ["x", "w", "bias"] if bias else ["x", "w"]
    tensors = {"w": weights(*shape), "bias": weights(channels, seed=9), **norm_parameters(channels)}
    nodes = [node(op, inputs, "c", **attrs), node("BatchNormalization", ["c", *NORM], "y", epsilon=1e-3)]
    result = checked(graph_model(nodes, {"x": x}, ["y"], tensors), [op], rtol=1e-5)
    assert len(result.graph.node[0].input) == 3


def test_batch_norm_without_a_layer_becomes_one_depthwise_convolution():
    model = graph_model([node("BatchNormalization", ["x", *NORM], "y")], {"x": [2, 4, 3, 3]}, ["y"], norm_parameters(4))
    result = checked(model, ["Conv"], rtol=1e-5)
    assert {a.name: a.i for a in result.graph.node[0].attribute} == {"group": 4}


def test_affine_maps_in_a_row_become_one_depthwise_convolution():
    tensors = {"k": weights(4, 1, 1), "o": weights(4, 1, 1, seed=1), **norm_parameters(4)}
    nodes = [node("BatchNormalization", ["x", *NORM], "n"), node("Mul", ["n", "k"], "t"), node("Add", ["t", "o"], "y")]
    checked(graph_model(nodes, {"x": [2, 4, 3, 3]}, ["y"], tensors), ["Conv"], rtol=1e-5)


def test_batch_norm_of_a_volume_or_a_matrix_becomes_mul_and_add():
    for shape in ([2, 4], [2, 4, 3], [1, 4, 3, 2, 2]):
        model = graph_model([node("BatchNormalization", ["x", *NORM], "y")], {"x": shape}, ["y"], norm_parameters(4))
        checked(model, ["Mul", "Add"], rtol=1e-5)


@pytest.mark.parametrize(
    ("factor", "offset"),
    [((4, 1, 1), (1, 1, 1)), ((1, 1, 3), (4, 1, 1)), ((4, 1, 1), (4, 3, 3)), ((2, 1, 1, 1), (4, 1, 1))],
)
def test_affine_maps_that_are_not_one_number_a_channel_stay(factor, offset):
    tensors = {"k": weights(*factor), "o": weights(*offset, seed=1)}
    nodes = [node("Mul", ["x", "k"], "t"), node("Add", ["t", "o"], "y")]
    checked(graph_model(nodes, {"x": [2, 4, 3, 3]}, ["y"], tensors), ["Mul", "Add"])


def test_an_affine_map_that_widens_its_input_stays():
    tensors = {"k": weights(4, 1, 1), "o": weights(4, 1, 1, seed=1)}
    nodes = [node("Mul", ["x", "k"], "t"), node("Add", ["t", "o"], "y")]
    checked(graph_model(nodes, {"x": [2, 1, 3, 3]}, ["y"], tensors), ["Mul", "Add"])


def test_shared_convolution_keeps_its_batch_norm_apart():
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("BatchNormalization", ["c", *NORM], "n"),
        node("Add", ["n", "c"], "y"),
    ]
    model = graph_model(nodes, {"x": [1, 3, 4, 4]}, ["y"], {"w": weights(4, 3, 1, 1), **norm_parameters(4)})
    checked(model, ["Conv", "Conv", "Add"], rtol=1e-5)


def test_shared_weights_are_copied_before_they_are_scaled():
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Mul", ["a", "k"], "b"),
        node("Conv", ["x", "w"], "c"),
        node("Add", ["b", "c"], "y"),
    ]
    model = graph_model(nodes, {"x": [1, 3, 4, 4]}, ["y"], {"w": weights(4, 3, 1, 1), "k": np.array(0.25, F32)})
    checked(model, ["Conv", "Conv", "Add"])


@pytest.mark.parametrize(
    ("constant", "folds"),
    [
        (weights(6, 1, 1), True),
        (weights(1, 6, 1, 1), True),
        (np.array(-0.5, F32), True),
        (weights(1, 1, 5), False),  # varies along x
        (weights(2, 6, 1, 1), False),  # varies along the batch
        (weights(1, 1, 1, 1, 1), False),  # would add a dimension
    ],
)
@pytest.mark.parametrize("op", ["Mul", "Add", "Sub"])
def test_only_per_channel_constants_fold(constant, folds, op):
    nodes = [node("Conv", ["x", "w", "b"], "c"), node(op, ["c", "k"], "y")]
    model = graph_model(
        nodes, {"x": [2, 4, 5, 5]}, ["y"], {"w": weights(6, 4, 1, 1), "b": weights(6, seed=2), "k": constant}
    )
    checked(model, ["Conv"] if folds else ["Conv", op], rtol=1e-5)


def test_constant_minus_layer_stays():
    nodes = [node("Conv", ["x", "w"], "c"), node("Sub", ["k", "c"], "y")]
    model = graph_model(nodes, {"x": [1, 4, 5, 5]}, ["y"], {"w": weights(6, 4, 1, 1), "k": np.array(1, F32)})
    checked(model, ["Conv", "Sub"])


def test_gemm_takes_its_factors_and_transposition():
    model = graph_model(
        [node("Gemm", ["x", "w", "c"], "y", alpha=0.3, beta=-2.0, transB=1)],
        {"x": [2, 5]},
        ["y"],
        {"w": weights(7, 5), "c": weights(7, seed=4)},
    )
    result = checked(model, ["Gemm"], rtol=1e-5)
    assert not result.graph.node[0].attribute
    assert constants(result)[result.graph.node[0].input[1]].shape == (5, 7)


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantized_gemm_weight_is_transposed_in_its_integers(per_channel):
    count = 7 if per_channel else ()
    tensors = {
        "w": np.random.default_rng(0).integers(-128, 128, (7, 5)).astype(np.int8),
        "s": np.random.default_rng(1).uniform(0.01, 0.1, count).astype(F32),
        "z": np.zeros(count, np.int8),
    }
    extra = {"axis": 0} if per_channel else {}
    nodes = [node("DequantizeLinear", ["w", "s", "z"], "d", **extra), node("Gemm", ["x", "d"], "y", transB=1)]
    result = checked(graph_model(nodes, {"x": [2, 5]}, ["y"], tensors), ["DequantizeLinear", "Gemm"])
    assert constants(result)[result.graph.node[0].input[0]].shape == (5, 7)


def test_transpose_of_a_quantized_weight_moves_into_it():
    tensors = {
        "w": np.random.default_rng(0).integers(-128, 128, (2, 7, 5)).astype(np.int8),
        "s": np.random.default_rng(1).uniform(0.01, 0.1, 7).astype(F32),
        "z": np.zeros(7, np.int8),
    }
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], "d", axis=1),
        node("Transpose", ["d"], "t", perm=[0, 2, 1]),
        node("MatMul", ["x", "t"], "y"),
    ]
    checked(graph_model(nodes, {"x": [2, 3, 5]}, ["y"], tensors), ["DequantizeLinear", "MatMul"])


@pytest.mark.parametrize(("op", "left"), [("Sum", "Add"), ("Max", "Max"), ("Min", "Min")])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_many_operands_become_a_chain(op, left, count):
    names = [f"x{i}" for i in range(count)]
    inputs = {name: [2, 1 if i % 2 else 3] for i, name in enumerate(names)}
    model = graph_model([node(op, names, "t", "many"), node("Relu", ["t"], "y")], inputs, ["y"])
    result = checked(model, [left] * (count - 1) + ["Relu"])
    assert len({n.name for n in result.graph.node}) == len(result.graph.node)


def test_each_reader_gets_its_own_dequantize():
    tensors = {"s": np.array(0.1, F32), "z": np.array(3, np.uint8)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d", "dq"),
        node("Relu", ["d"], "a"),
        node("Mul", ["d", "d"], "b"),
        node("Add", ["a", "b"], "y"),
    ]
    dequantize = "DequantizeLinear"
    expected = ["QuantizeLinear", dequantize, "Relu", dequantize, dequantize, "Mul", "Add"]
    result = checked(graph_model(nodes, {"x": [2, 3]}, ["y"], tensors), expected)
    read = [name for n in result.graph.node for name in n.input]
    assert all(read.count(n.output[0]) == 1 for n in result.graph.node if n.op_type == "DequantizeLinear")
