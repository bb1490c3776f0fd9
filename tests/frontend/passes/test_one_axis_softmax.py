"""Softmax of the older operator sets, before and after, against onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from torq_byoc.frontend import prepare
from torq_byoc.quantize.evaluation.evaluator import Evaluator

SHAPES = ((2, 3, 4), (1, 5, 1, 1), (2, 1, 3), (1, 1, 1))


def _model(operator: str, shape: tuple[int, ...], axis: int | None, opset: int) -> onnx.ModelProto:
    attributes = "" if axis is None else f"<axis={axis}>"
    kind = f"float{list(shape)}"
    return onnx.parser.parse_model(
        f'<ir_version: 7, opset_import: ["" : {opset}]>'
        f" g ({kind} x) => ({kind} y) {{ t = Neg(x)\n y = {operator}{attributes}(t) }}"
    )


@pytest.mark.parametrize("opset", [7, 11, 12, 13])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_results_stay(operator: str, opset: int) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for shape, axis in itertools.product(SHAPES, (None, 0, 1, 2, -1, -2)):
        if axis is not None and axis < 0 and opset < 11:
            continue  # negative axes came with operator set 11
        model = _model(operator, shape, axis, opset)
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        (wanted,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
        found = Evaluator(prepare(model)).outputs({"x": x})["y"]
        assert np.allclose(found, wanted, atol=1e-6), (shape, axis)


def test_several_axes_become_rows_and_the_node_keeps_its_name() -> None:
    model = _model("Softmax", (2, 3, 4), None, 11)
    model.graph.node[1].name = "probabilities"
    nodes = prepare(model).graph.node
    assert [node.op_type for node in nodes] == ["Neg", "Flatten", "Softmax", "Reshape"]
    assert nodes[2].name == "probabilities" and nodes[2].attribute[0].i == 1


@pytest.mark.parametrize(("shape", "axis"), [((1, 5, 1, 1), 1), ((2, 1, 3), 2)])
def test_one_long_axis_is_named(shape: tuple[int, ...], axis: int) -> None:
    (_, node) = prepare(_model("Softmax", shape, None, 11)).graph.node
    assert (node.op_type, node.attribute[0].i) == ("Softmax", axis)
