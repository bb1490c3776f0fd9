"""Branches with a bound condition and local functions are inlined."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.onnx_tools import assert_same_results, graph_model, node, ops
from tests.frontend.passes.tools import F32, checked
from torq_byoc.frontend import prepare


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
