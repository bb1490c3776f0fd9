"""Biases go to the matrix products that they belong to."""

from __future__ import annotations

import pytest

from tests.frontend.onnx_tools import graph_model, node
from tests.frontend.passes.tools import checked, i64, weights

STORED = dict(
    w=weights(6, 4),
    u=weights(6, 4, seed=1),
    b=weights(4, seed=2),
    deep=weights(1, 1, 4, seed=3),
    wide=i64(1, 3, 4),
    odd=i64(1, 4, 3),
    c=weights(3, seed=4),
    all=weights(3, 4, seed=5),
)
PRODUCT = node("MatMul", ["x", "w"], "p", "product")


@pytest.mark.parametrize("bias", ["b", "deep"])
def test_a_bias_behind_a_reshape(bias: str) -> None:
    nodes = [PRODUCT, node("Reshape", ["p", "wide"], "r", "shape"), node("Add", ["r", bias], "y", "bias")]
    prepared = checked(graph_model(nodes, {"x": [3, 6]}, ["y"], STORED), ["MatMul", "Add", "Reshape"])
    assert prepared.graph.node[1].input[0] == "p"


def test_a_bias_of_several_dimensions() -> None:
    stored = STORED | dict(flat=weights(1, 4, seed=6))
    nodes = [PRODUCT, node("Add", ["flat", "p"], "y", "bias")]
    prepared = checked(graph_model(nodes, {"x": [3, 6]}, ["y"], stored), ["MatMul", "Add"])
    (bias,) = [tensor for tensor in prepared.graph.initializer if tensor.name in prepared.graph.node[1].input]
    assert list(bias.dims) == [4]


@pytest.mark.parametrize(("inputs", "bias"), [([3, 6], "deep"), ([6], "flat")])
def test_a_bias_of_more_dimensions_than_the_product_stays(inputs: list[int], bias: str) -> None:
    stored = STORED | dict(flat=weights(1, 4, seed=6))
    prepared = checked(
        graph_model([PRODUCT, node("Add", ["p", bias], "y", "bias")], {"x": inputs}, ["y"], stored), ["MatMul", "Add"]
    )
    assert len(prepared.graph.output[0].type.tensor_type.shape.dim) > len(inputs)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_bias_behind_the_sum_of_a_recurrent_cell(swapped: bool) -> None:
    operands = ["p", "q"][:: -1 if swapped else 1]
    nodes = [
        PRODUCT,
        node("MatMul", ["z", "u"], "q", "state"),
        node("Add", operands, "s", "sum"),
        node("Add", ["b", "s"], "y", "bias"),
    ]
    prepared = checked(
        graph_model(nodes, {"x": [3, 6], "z": [3, 6]}, ["y"], STORED), ["MatMul", "MatMul", "Add", "Add"]
    )
    first, last = prepared.graph.node[2:]
    assert first.input[0] == operands[0] and first.input[1] == "b" and set(last.input) == {first.output[0], operands[1]}


def test_every_cell_of_a_model() -> None:
    nodes = []
    for cell in "ab":
        nodes += [
            node("MatMul", ["x", "w"], f"p{cell}", f"p{cell}"),
            node("Add", [f"p{cell}", f"z{cell}"], f"s{cell}", f"s{cell}"),
        ]
        nodes.append(node("Add", [f"s{cell}", "b"], f"y{cell}", f"y{cell}"))
    model = graph_model(nodes, {"x": [3, 6], "za": [3, 4], "zb": [3, 4]}, ["ya", "yb"], STORED)
    prepared = checked(model, ["MatMul", "Add", "Add"] * 2)
    assert sum("b" in node.input for node in prepared.graph.node if node.input[0].startswith("p")) == 2


@pytest.mark.parametrize(
    ("between", "bias", "outputs"),
    [
        (node("Reshape", ["p", "odd"], "r", "shape"), "c", ["y"]),  # other columns
        (node("Reshape", ["p", "wide"], "r", "shape"), "all", ["y"]),  # a number for every element
        (node("Reshape", ["p", "wide"], "r", "shape"), "b", ["y", "r"]),  # somebody sees it without
        (node("Reshape", ["p", "wide"], "r", "shape"), "b", ["y", "p"]),
        (node("Mul", ["p", "p"], "r", "square"), "b", ["y"]),
    ],
)
def test_other_additions_stay(between, bias: str, outputs: list[str]) -> None:  # noqa: ANN001
    nodes = [PRODUCT, between, node("Add", ["r", bias], "y", "bias")]
    checked(graph_model(nodes, {"x": [3, 6]}, outputs, STORED), ["MatMul", between.op_type, "Add"])
