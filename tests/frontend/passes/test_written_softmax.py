"""Softmax written out in the forms that exporters give it, against what it was."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.onnx_tools import graph_model, node
from tests.frontend.passes.tools import checked, i64

F32 = np.float32


def written(maximum: list, total: list, subtracted: str = "m", summed: str = "s", shape: list[int] | None = None):
    nodes = [
        *maximum,
        node("Sub", ["x", subtracted], "d", "sub"),
        node("Exp", ["d"], "e", "exp"),
        *total,
        node("Div", ["e", summed], "y", "divide"),
    ]
    stored = dict(axes=i64(1), column=i64(-1, 1), least=np.array([-np.inf], F32))
    return graph_model(nodes, {"x": shape or [3, 5]}, ["y"], stored, opset=15)


KEPT_MAXIMUM = [node("ReduceMax", ["x"], "m", "max", axes=[1])]
KEPT_TOTAL = [node("ReduceSum", ["e", "axes"], "s", "sum")]
RESHAPED_MAXIMUM = [
    node("ReduceMax", ["x"], "m0", "max", axes=[1], keepdims=0),
    node("Max", ["least", "m0"], "m1", "limit"),
    node("Reshape", ["m1", "column"], "m", "again"),
]
RESHAPED_TOTAL = [
    node("ReduceSum", ["e", "axes"], "s0", "sum", keepdims=0),
    node("Reshape", ["s0", "column"], "s", "once_more"),
]


@pytest.mark.parametrize(
    ("maximum", "total"),
    [(KEPT_MAXIMUM, KEPT_TOTAL), (RESHAPED_MAXIMUM, RESHAPED_TOTAL), (KEPT_MAXIMUM, RESHAPED_TOTAL)],
)
def test_a_written_softmax_is_one(maximum: list, total: list) -> None:
    prepared = checked(written(maximum, total), ["Softmax"])
    assert prepared.graph.node[0].name == "divide" and prepared.graph.node[0].input[0] == "x"


def test_another_axis_and_no_maximum() -> None:
    nodes = [
        node("Exp", ["x"], "e", "exp"),
        node("ReduceSum", ["e", "first"], "s", "sum"),
        node("Div", ["e", "s"], "y", "divide"),
    ]
    prepared = checked(graph_model(nodes, {"x": [2, 3, 4]}, ["y"], dict(first=i64(1)), opset=15), ["Softmax"])
    assert prepared.graph.node[0].attribute[0].i == 1


@pytest.mark.parametrize(
    ("shape", "axis", "kinds"),
    [
        ([2, 3, 4, 5], 1, ["Transpose", "Softmax", "Transpose"]),
        ([2, 3, 4, 5], -2, ["Transpose", "Softmax", "Transpose"]),
        ([2, 3, 4, 5], 3, ["Softmax"]),
        ([2, 3, 1, 1], 1, ["Softmax"]),
    ],
)
def test_where_softmax_still_ran_over_all_axes_behind_its_own(shape: list[int], axis: int, kinds: list[str]) -> None:
    nodes = [
        node("ReduceMax", ["x"], "m", "max", axes=[axis]),
        node("Sub", ["x", "m"], "d", "sub"),
        node("Exp", ["d"], "e", "exp"),
        node("ReduceSum", ["e"], "s", "sum", axes=[axis]),
        node("Div", ["e", "s"], "y", "divide"),
    ]
    prepared = checked(graph_model(nodes, {"x": shape}, ["y"], {}, opset=11), kinds)
    assert [one.name for one in prepared.graph.node if one.op_type == "Softmax"] == ["divide"]


def test_what_differs_along_the_row_is_still_taken_from_it() -> None:
    stored = dict(axes=i64(1), slope=np.arange(5, dtype=F32))
    nodes = [
        node("Sub", ["x", "slope"], "d", "sub"),
        node("Exp", ["d"], "e", "exp"),
        node("ReduceSum", ["e", "axes"], "s", "sum"),
        node("Div", ["e", "s"], "y", "divide"),
    ]
    checked(graph_model(nodes, {"x": [3, 5]}, ["y"], stored, opset=15), ["Sub", "Softmax"])


@pytest.mark.parametrize("other", ["rows", "two axes", "read twice", "another sum"])
def test_what_only_looks_like_one_stays(other: str) -> None:
    nodes = [
        node("Exp", ["x"], "e", "exp"),
        node("ReduceSum", ["e", "axes"], "s", "sum"),
        node("Div", ["e", "s"], "y", "d"),
    ]
    stored = dict(axes=i64(1), column=i64(1, 3))
    outputs = ["y"]
    if other == "rows":  # three sums laid along the row of three: each element is divided by another row's
        nodes[1:] = [
            node("ReduceSum", ["e", "axes"], "s0", "sum", keepdims=0),
            node("Reshape", ["s0", "column"], "s", "again"),
            node("Div", ["e", "s"], "y", "d"),
        ]
    elif other == "two axes":
        stored = dict(axes=i64(0, 1))
    elif other == "read twice":
        nodes.append(node("Neg", ["e"], "z", "neg"))
        outputs = ["y", "z"]
    else:
        nodes.insert(0, node("Abs", ["x"], "a", "abs"))
        nodes[2] = node("ReduceSum", ["a", "axes"], "s", "sum")
    model = graph_model(nodes, {"x": [3, 3]}, outputs, stored, opset=15)
    kept = {"rows": ["Exp", "ReduceSum", "Reshape", "Div"], "two axes": ["Exp", "ReduceSum", "Div"]}
    kept |= {"read twice": ["Exp", "ReduceSum", "Div", "Neg"], "another sum": ["Abs", "Exp", "ReduceSum", "Div"]}
    checked(model, kept[other])
