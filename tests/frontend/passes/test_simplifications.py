"""Constants, nodes that change nothing, windows, and the list of clean-up passes itself."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx_tools import assert_same_results, constants, graph_model, node, ops
from tests.frontend.passes.tools import F32, checked, i64, weights
from torq_byoc.errors import InternalError, ModelFileError, ShapeError
from torq_byoc.frontend import prepare
from torq_byoc.frontend.passes import PASSES, CleanUp


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
