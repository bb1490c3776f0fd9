"""to_relax: the names that nodes and tensors carry, and what it refuses by name."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.onnx_tools import graph_model, node, shared_model
from tests.frontend.relax_tools import F32, X4, assert_matches, calls, const, weights
from torq_byoc.errors import ShapeError, UnsupportedOpError
from torq_byoc.frontend import load_model, onnx_node_name, prepare, to_relax

tvm = pytest.importorskip("tvm")
relax = tvm.relax


def test_names_of_nodes_and_tensors_survive():
    nodes = [
        node("Conv", ["x/in:0", "w", "b"], "scope/conv:0", "scope/conv"),
        node("Relu", ["scope/conv:0"], "r.1"),
        node("Split", ["r.1"], ["p", "q"], "cut", axis=1, num_outputs=2),
        node("Add", ["p", "q"], "9 lives", "sum"),
    ]
    model = graph_model(
        nodes, {"x/in:0": [1, 2, 4, 4]}, ["9 lives"], const(w=weights(4, 2, 1, 1), b=weights(4)), opset=18
    )
    module = to_relax(model)
    assert [onnx_node_name(c) for c in calls(module)] == ["scope/conv", "scope/conv", "r.1", "cut", "sum"]
    bound = [b.var.name for block in module["main"].body.blocks for b in block.bindings]
    assert {"scope_conv_0", "r_1", "p", "q"} <= set(bound)
    assert list(module["main"].attrs["torq.input_names"]) == ["x/in:0"]
    assert list(module["main"].attrs["torq.output_names"]) == ["9 lives"]
    assert [p.name for p in module["main"].params] == ["x_in_0"]


def test_node_names_survive_fusion():
    from tvm.relax.dpl import is_op, wildcard

    nodes = [node("Add", ["x", "k"], "a", "first"), node("Relu", ["a"], "y", "second")]
    module = to_relax(graph_model(nodes, {"x": [2]}, ["y"], const(k=weights(2))))
    patterns = [("t.add_relu", is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard())))]
    fused = relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(module)
    fused = relax.transform.MergeCompositeFunctions()(fused)
    names = []

    def visit(expr):
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            names.append(onnx_node_name(expr))

    for function in fused.functions.values():
        relax.analysis.post_order_visit(function, visit)
    assert names == ["first", "second"]


def test_colliding_identifiers_stay_apart():
    nodes = [node("Add", ["a.b", "a/b"], "a:b"), node("Relu", ["a:b"], "a_b")]
    model = graph_model(nodes, {"a.b": [2], "a/b": [2]}, ["a_b"])
    module = to_relax(model)
    names = [p.name for p in module["main"].params]
    assert len(set(names)) == 2
    assert_matches(model)


def test_all_unsupported_operators_are_listed():
    nodes = [
        node("Det", ["x"], "a", "one"),
        node("Relu", ["x"], "b", "two"),
        node("LpNormalization", ["b"], "y", "three"),
    ]
    with pytest.raises(UnsupportedOpError) as caught:
        to_relax(prepare(graph_model(nodes, {"x": [3, 3]}, ["a", "y"])))
    assert caught.value.details["nodes"] == {"Det": ["one"], "LpNormalization": ["three"]}


@pytest.mark.parametrize(
    "bad",
    [
        node("Dropout", ["x", "", "t"], "y", "n"),
        node("RoiAlign", ["x", "r", "i"], "y", "n", mode="max"),
    ],
)
def test_forms_without_a_conversion_name_the_node(bad):
    constants = const(t=np.array(True), r=np.zeros((1, 4), F32), i=np.zeros(1, np.int64))
    with pytest.raises(UnsupportedOpError, match="'n'"):
        to_relax(prepare(graph_model([bad], X4, ["y"], constants, opset=18)))


def test_failures_are_quiet(capfd):
    model = graph_model([node("Dropout", ["x", "", "t"], "y")], X4, ["y"], const(t=np.array(True)), opset=18)
    with pytest.raises(UnsupportedOpError):
        to_relax(model)
    captured = capfd.readouterr()
    assert captured.out == "" and "BlockBuilder" not in captured.err


def test_unknown_shapes_are_refused():
    model = graph_model([node("Flatten", ["x"], "y")], {"x": ["N", 2, 3]}, ["y"])
    with pytest.raises(ShapeError, match="--shape"):
        to_relax(model)


def test_import_is_deterministic():
    model = prepare(load_model(shared_model("qdq/resnet8_cifar_qdq_s8s8_pc.onnx")))
    first, second = (to_relax(model) for _ in range(2))
    tvm.ir.assert_structural_equal(first, second, map_free_vars=True)
    assert first.script(show_meta=False) == second.script(show_meta=False)
    assert [onnx_node_name(c) for c in calls(first)] == [onnx_node_name(c) for c in calls(second)]
