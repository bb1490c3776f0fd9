"""Each clean-up pass: the operators left, the same numbers before and after, and what it must leave alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.onnx_tools import assert_same_results, constants, graph_model, node, ops
from torq_byoc.errors import InternalError, ModelFileError, ShapeError
from torq_byoc.frontend import prepare
from torq_byoc.frontend.passes import PASSES, CleanUp

F32 = np.float32


def checked(model: onnx.ModelProto, expected: list[str], rtol: float = 2e-6, **options) -> onnx.ModelProto:
    """Prepare; the operators are ``expected``, the numbers are unchanged, the result is valid ONNX."""
    result = prepare(model, **options)
    assert ops(result) == expected
    onnx.checker.check_model(result, full_check=True)
    assert_same_results(model, result, rtol)
    return result


def weights(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def i64(*values):
    return np.array(values, np.int64)


# --- constants ------------------------------------------------------------------------------------------


def test_constant_nodes_and_weight_inputs_become_stored_tensors():
    model = graph_model(
        [
            helper.make_node("Constant", [], ["c"], value_floats=[1.0, -2.0, 3.0]),
            helper.make_node("Constant", [], ["k"], value_float=0.5),
            node("Mul", ["x", "c"], "a"),
            node("Add", ["a", "k"], "b"),
            node("Add", ["b", "w"], "y"),
        ],
        {"x": [2, 3], "w": [3]},
        ["y"],
        {"w": np.array([9, 8, 7], F32)},
    )
    result = checked(model, ["Mul", "Add", "Add"])
    assert [v.name for v in result.graph.input] == ["x"]
    assert set(constants(result)) == {"c", "k", "w"}


def test_shape_arithmetic_is_folded_to_one_reshape():
    nodes = [
        node("Shape", ["x"], "s"),
        node("Gather", ["s", "zero"], "n"),
        node("Unsqueeze", ["n", "zero1"], "n1"),
        node("Concat", ["n1", "minus"], "target", axis=0),
        node("Reshape", ["x", "target"], "y"),
    ]
    model = graph_model(
        nodes, {"x": ["N", 3, 4]}, ["y"], {"zero": np.array(0, np.int64), "zero1": i64(0), "minus": i64(-1)}
    )
    result = prepare(model, {"x": (2, 3, 4)})
    assert ops(result) == ["Reshape"]
    assert constants(result)["target"].tolist() == [2, -1]
    assert_same_results(model, result)


def test_dequantize_of_weights_is_never_folded():
    tensors = {"w": np.arange(-6, 6, dtype=np.int8).reshape(3, 4), "s": np.array(0.1, F32), "z": np.array(-2, np.int8)}
    model = graph_model(
        [node("DequantizeLinear", ["w", "s", "z"], "d"), node("MatMul", ["x", "d"], "y")], {"x": [2, 3]}, ["y"], tensors
    )
    checked(model, ["DequantizeLinear", "MatMul"])


def test_quantize_of_stored_weights_is_folded():
    tensors = {"w": weights(3, 4), "s": np.array(0.02, F32), "z": np.array(0, np.int8)}
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("MatMul", ["x", "d"], "y"),
    ]
    result = checked(graph_model(nodes, {"x": [2, 3]}, ["y"], tensors), ["DequantizeLinear", "MatMul"])
    assert constants(result)["q"].dtype == np.int8


def test_large_results_stay_unfolded():
    nodes = [
        node("ConstantOfShape", ["k"], "t"),
        node("ReduceSum", ["t"], "s", keepdims=0),
        node("Add", ["x", "s"], "y"),
    ]
    model = graph_model(nodes, {"x": [2]}, ["y"], {"k": i64(5000, 5000)})
    assert ops(prepare(model)) == ["ConstantOfShape", "ReduceSum", "Add"]


def test_scalars_keep_their_rank():
    nodes = [node("Squeeze", ["one", "axis"], "s"), node("Range", ["s", "end", "s"], "r"), node("Add", ["x", "r"], "y")]
    model = graph_model(
        nodes,
        {"x": ["N"]},
        ["y"],
        {"one": np.array([1], F32), "axis": i64(0), "end": np.array(5, F32)},
    )
    result = prepare(model, {"x": (4,)})
    assert ops(result) == ["Add"]
    assert_same_results(model, result)


def test_constant_node_that_cannot_be_computed():
    model = graph_model(
        [node("Reshape", ["w", "k"], "r"), node("Add", ["x", "r"], "y")],
        {"x": [4]},
        ["y"],
        {"w": weights(6), "k": i64(0, 0, 0)},
    )
    with pytest.raises((ModelFileError, ShapeError)):
        prepare(model)


# --- nodes that change nothing --------------------------------------------------------------------------


def test_identities_disappear():
    nodes = [
        node("Relu", ["x"], "a"),
        node("Identity", ["a"], "b"),
        node("Cast", ["b"], "c", to=TensorProto.FLOAT),
        node("Reshape", ["c", "same"], "d"),
        node("Dropout", ["d"], "e"),
        node("Transpose", ["e"], "f", perm=[0, 1, 2]),
        node("Pad", ["f", "none"], "g"),
        node("Concat", ["g"], "h", axis=1),
        node("Identity", ["h"], "y"),
    ]
    model = graph_model(nodes, {"x": [2, 3, 4]}, ["y"], {"same": i64(2, 3, 4), "none": i64(0, 0, 0, 0, 0, 0)})
    result = checked(model, ["Relu"])
    assert result.graph.node[0].output[0] == "y"


def test_identity_between_input_and_output_stays():
    checked(graph_model([node("Identity", ["x"], "y")], {"x": [2]}, ["y"]), ["Identity"])


def test_two_outputs_that_are_the_same_tensor():
    nodes = [node("Relu", ["x"], "y"), node("Identity", ["y"], "z"), node("Neg", ["y"], "w")]
    checked(graph_model(nodes, {"x": [2]}, ["y", "z", "w"]), ["Relu", "Identity", "Neg"])


def test_output_name_survives_when_its_producer_has_other_readers():
    nodes = [node("Relu", ["x"], "a"), node("Identity", ["a"], "y"), node("Neg", ["a"], "z")]
    result = checked(graph_model(nodes, {"x": [2]}, ["y", "z"]), ["Relu", "Neg"])
    assert list(result.graph.node[1].input) == ["y"]


def test_transpose_pairs_cancel_and_compose():
    nodes = [
        node("Transpose", ["x"], "a", perm=[0, 2, 3, 1]),
        node("Transpose", ["a"], "b", perm=[0, 3, 1, 2]),
        node("Relu", ["b"], "c"),
        node("Transpose", ["c"], "d", perm=[1, 0, 2, 3]),
        node("Transpose", ["d"], "y", perm=[0, 1, 3, 2]),
    ]
    result = checked(graph_model(nodes, {"x": [2, 3, 4, 5]}, ["y"]), ["Relu", "Transpose"])
    assert list(result.graph.node[1].attribute[0].ints) == [1, 0, 3, 2]


def test_transpose_of_ones_is_a_reshape():
    model = graph_model(
        [node("Transpose", ["x"], "t", perm=[0, 2, 3, 1]), node("Relu", ["t"], "y")], {"x": [1, 6, 1, 1]}, ["y"]
    )
    checked(model, ["Reshape", "Relu"])


def test_reshape_chains_merge():
    nodes = [
        node("Flatten", ["x"], "a"),
        node("Unsqueeze", ["a", "one"], "b"),
        node("Reshape", ["b", "k"], "c"),
        node("Squeeze", ["c", "one"], "y"),
    ]
    model = graph_model(nodes, {"x": [2, 3, 4]}, ["y"], {"one": i64(1), "k": i64(0, 1, 4, 3)})
    checked(model, ["Reshape"])


def test_dead_nodes_and_weights_go_but_inputs_stay():
    model = graph_model(
        [node("Relu", ["x"], "y"), node("Add", ["x", "w"], "unused")],
        {"x": [3], "spare": [2]},
        ["y"],
        {"w": weights(3)},
    )
    result = checked(model, ["Relu"])
    assert [v.name for v in result.graph.input] == ["x", "spare"]
    assert not result.graph.initializer


# --- windows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 3, 2), (8, 4, 3), (9, 2, 1), (5, 1, 2)])
def test_auto_pad_of_convolutions(mode, size, kernel, stride):
    attrs = {"auto_pad": mode, "strides": [stride, 1]}
    model = graph_model(
        [node("Conv", ["x", "w"], "y", **attrs)], {"x": [1, 2, size, 6]}, ["y"], {"w": weights(3, 2, kernel, 3)}
    )
    result = checked(model, ["Conv"])
    names = {a.name for a in result.graph.node[0].attribute}
    assert "pads" in names and "auto_pad" not in names


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_auto_pad_of_pools(op, mode):
    model = graph_model(
        [node(op, ["x"], "y", auto_pad=mode, kernel_shape=[3, 2], strides=[2, 2])], {"x": [1, 2, 7, 6]}, ["y"]
    )
    checked(model, [op])


@pytest.mark.parametrize("attrs", [{"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"output_shape": [9, 10]}])
def test_transposed_convolution_gets_explicit_pads(attrs):
    extra = {"strides": [2, 2], **attrs}
    model = graph_model(
        [node("ConvTranspose", ["x", "w"], "y", **extra)], {"x": [1, 2, 5, 5]}, ["y"], {"w": weights(2, 3, 3, 4)}
    )
    result = checked(model, ["ConvTranspose"])
    assert {a.name for a in result.graph.node[0].attribute} == {"strides", "pads"}


# --- layers ---------------------------------------------------------------------------------------------


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


# --- control flow ---------------------------------------------------------------------------------------


def branches():
    """Both branches use the same inner names; the else branch holds a nested If and a weight of its own."""
    out = [helper.make_tensor_value_info("t", TensorProto.FLOAT, [2])]
    then = helper.make_graph([node("Relu", ["x"], "inner"), node("Neg", ["inner"], "t")], "then", [], out)
    deep = helper.make_graph(
        [node("Mul", ["inner", "w"], "u")], "deep", [], [helper.make_tensor_value_info("u", 1, [2])]
    )
    other = helper.make_graph(
        [node("Exp", ["x"], "inner"), node("If", ["flag"], "t", then_branch=deep, else_branch=deep)],
        "else",
        [],
        out,
        [numpy_helper.from_array(np.array([3, 5], F32), "w")],
    )
    return then, other


@pytest.mark.parametrize(("number", "expected"), [(16000, ["Relu", "Neg"]), (8000, ["Exp", "Mul"])])
def test_if_with_a_bound_condition_is_inlined(number, expected):
    then, other = branches()
    nodes = [
        node("Equal", ["rate", "wanted"], "cond"),
        node("If", ["cond"], "y", then_branch=then, else_branch=other),
    ]
    tensors = {"wanted": np.array(16000, np.int64), "flag": np.array(True)}
    model = graph_model(nodes, {"x": [2], "rate": []}, ["y"], tensors, dtypes={"rate": TensorProto.INT64})
    rate = np.array(number, np.int64)
    result = prepare(model, bind={"rate": rate})
    assert ops(result) == expected
    assert_same_results(model, result, feeds={"x": np.array([-1.5, 2.0], F32), "rate": rate})


def test_two_ifs_with_the_same_inner_names():
    then, other = branches()
    nodes = [
        node("If", ["flag"], "a", "one", then_branch=then, else_branch=other),
        node("If", ["flag"], "b", "two", then_branch=then, else_branch=other),
        node("Add", ["a", "b"], "y"),
    ]
    checked(graph_model(nodes, {"x": [2]}, ["y"], {"flag": np.array(True)}), ["Relu", "Neg", "Relu", "Neg", "Add"])


def test_local_functions_are_inlined():
    body = [node("Relu", ["a"], "t"), node("Add", ["t", "t"], "b")]
    function = helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    model = graph_model([helper.make_node("Twice", ["x"], ["y"], domain="local")], {"x": [3]}, ["y"], domains=["local"])
    model.functions.append(function)
    checked(model, ["Relu", "Add"])


# --- the list itself ------------------------------------------------------------------------------------


def test_every_pass_can_be_left_out():
    nodes = [node("Conv", ["x", "w"], "c"), node("Identity", ["c"], "d"), node("Mul", ["d", "k"], "y")]
    model = graph_model(nodes, {"x": [1, 2, 3, 3]}, ["y"], {"w": weights(2, 2, 1, 1), "k": np.array(2, F32)})
    assert ops(prepare(model, disabled=["fold_affine"])) == ["Conv", "Mul"]
    assert ops(prepare(model, disabled=["remove_identities"])) == ["Conv", "Identity", "Mul"]
    for name in [p.name for p in PASSES]:
        assert_same_results(model, prepare(model, disabled=[name]))


def test_passes_that_never_settle_are_reported(monkeypatch):
    monkeypatch.setattr("torq_byoc.frontend.preparation.PASSES", (CleanUp("restless", lambda editor: 1),))
    model = graph_model([node("Relu", ["x"], "y")], {"x": [2]}, ["y"])
    with pytest.raises(InternalError, match="do not come to an end"):
        prepare(model)
