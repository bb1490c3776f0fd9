"""Operators that are replaced by simpler ones, and tensors without elements."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from tests.frontend.onnx_tools import assert_same_results, constants, graph_model, node, ops, random_feeds
from torq_byoc.errors import ShapeError
from torq_byoc.frontend import prepare
from torq_byoc.frontend.passes.expand_functions import EXPANDED

F32 = np.float32


def names(model: onnx.ModelProto) -> list[str]:
    return [n.name for n in model.graph.node]


def test_definitions_are_named_after_their_node():
    made = [node("Relu", ["x"], "r", "first"), node("Celu", ["r"], "y", "celu", alpha=2.0)]
    model = graph_model(made, {"x": [2, 3]}, ["y"])
    prepared = prepare(model)
    assert ops(prepared) == ["Relu", "Div", "Elu", "Mul"]
    assert names(prepared)[0] == "first" and names(prepared)[-1] == "celu"
    assert all(name.startswith("celu_") for name in names(prepared)[1:-1])
    assert_same_results(model, prepared)


def test_two_neighbours_keep_their_own_names():
    made = [node("Celu", ["x"], "a", "one"), node("Celu", ["a"], "y", "two", alpha=0.5)]
    prepared = prepare(graph_model(made, {"x": [4]}, ["y"]))
    owners = [name.split("_")[0] for name in names(prepared)]
    assert owners == sorted(owners) and set(owners) == {"one", "two"} and names(prepared)[-1] == "two"


@pytest.mark.parametrize("stored", [False, True])
def test_definitions_that_depend_on_types_see_stored_tensors(stored):
    shape = [1, 2, 3, 4]
    inputs = {"q": shape} if stored else {"q": shape, "k": shape, "v": shape}
    values = np.random.default_rng(0).standard_normal(shape).astype(F32)
    weights = {"k": values, "v": values[..., ::-1]} if stored else {}
    made = node("Attention", ["q", "k", "v"], "y", is_causal=1)
    prepared = prepare(graph_model([made], inputs, ["y"], weights, opset=23))
    assert not EXPANDED & set(ops(prepared))
    feeds = random_feeds(prepared)
    q, k, v = (feeds.get(name, weights.get(name)) for name in "qkv")
    scores = np.einsum("bhid,bhjd->bhij", q, k) / 2 + np.triu(np.full((3, 3), -np.inf), 1)
    wanted = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = wanted / wanted.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(ReferenceEvaluator(prepared).run(None, feeds)[0], wanted, rtol=1e-5, atol=1e-6)


def test_definitions_inside_definitions():
    made = node("SoftmaxCrossEntropyLoss", ["x", "t"], "y", reduction="mean")
    model = graph_model([made], {"x": [3, 5]}, ["y"], {"t": np.array([0, 4, 2])}, opset=13)
    prepared = prepare(model)
    assert not EXPANDED & set(ops(prepared))
    assert_same_results(model, prepared)


def test_opset_imports_stay_those_of_the_model():
    prepared = prepare(graph_model([node("Celu", ["x"], "y")], {"x": [4]}, ["y"]))
    assert [(o.domain, o.version) for o in prepared.opset_import] == [("", 17)]


@pytest.mark.parametrize("opset", [18, 21])
def test_groups_become_instances(opset):
    count = 2 if opset < 21 else 6
    weights = {"s": np.linspace(-2, 3, count, dtype=F32), "b": np.linspace(1, -1, count, dtype=F32)}
    made = node("GroupNormalization", ["x", "s", "b"], "y", "g", num_groups=2)
    model = graph_model([made], {"x": [2, 6, 3, 1]}, ["y"], weights, opset=opset)
    prepared = prepare(model)
    assert ops(prepared).count("InstanceNormalization") == 1 and "GroupNormalization" not in ops(prepared)
    assert names(prepared)[-1] == "g"
    x = random_feeds(prepared)["x"]
    parts = x.reshape(2, 2, -1).astype(np.float64)
    normal = ((parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    scale, bias = (weights[name].repeat(6 // count).reshape(1, 6, 1, 1) for name in "sb")
    found = ReferenceEvaluator(prepared).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, normal * scale + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_mean_variance_keeps_its_digits_far_from_zero(opset):
    model = graph_model([node("MeanVarianceNormalization", ["x"], "y")], {"x": [2, 3, 4, 5]}, ["y"], opset=opset)
    prepared = prepare(model)
    assert "MeanVarianceNormalization" not in ops(prepared)
    x = (np.random.default_rng(0).standard_normal((2, 3, 4, 5)) + 3000).astype(F32)
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean((0, 2, 3), keepdims=True)) / wide.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(ReferenceEvaluator(prepared).run(None, {"x": x})[0], wanted, rtol=1e-3, atol=2e-3)


def test_results_without_elements_are_stored_and_dropped_from_concat():
    made = [
        node("Split", ["x", "n"], ["a", "e", "b"], axis=1),
        node("Neg", ["e"], "f"),
        node("Concat", ["a", "f", "b"], "y", axis=1),
    ]
    model = graph_model(made, {"x": [2, 5]}, ["y"], {"n": np.array([3, 0, 2])})
    prepared = prepare(model)
    assert ops(prepared) == ["Split", "Concat"]
    assert list(prepared.graph.node[1].input) == ["a", "b"]
    assert_same_results(model, prepared)


def test_an_output_without_elements_is_a_stored_tensor():
    made = [node("Slice", ["x", "z", "z"], "e"), node("Cast", ["e"], "y", to=TensorProto.INT64)]
    model = graph_model(made, {"x": [2, 5]}, ["y"], {"z": np.array([0])}, output_dtype=TensorProto.INT64)
    prepared = prepare(model)
    assert ops(prepared) == ["Identity"]
    (value,) = constants(prepared).values()
    assert value.shape == (0, 5) and value.dtype == np.int64


def test_a_node_that_needs_elements_and_has_none_is_refused():
    made = [node("Slice", ["x", "z", "z"], "e"), node("Gemm", ["e", "w", "c"], "y", "n", transA=1)]
    constants_of_it = {"z": np.array([0]), "w": np.zeros((0, 4), F32)}
    model = graph_model(made, {"x": [2, 5], "c": [4]}, ["y"], constants_of_it)
    with pytest.raises(ShapeError, match="without elements") as caught:
        prepare(model)
    assert "'n'" in caught.value.where


@pytest.mark.parametrize("optional", [["y", "", "i"], ["y"]])
def test_choices_among_constants_are_computed(optional):
    made = [
        node("Unique", ["k"], optional),
        node("Cast", [optional[-1]], "z", to=TensorProto.FLOAT),
        node("Relu", ["x"], "r"),
    ]
    prepared = prepare(graph_model(made, {"x": [2]}, ["z", "r"], {"k": np.array([3.0, 1.0, 3.0])}))
    assert "Unique" not in ops(prepared)
    found = next(v for name, v in constants(prepared).items() if name.startswith("z"))
    assert found.tolist() == ([1.0, 0.0, 1.0] if len(optional) == 3 else [1.0, 3.0])
