"""The evaluator's convolution against the onnx package's own, over the corners of its attributes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from torq_byoc.quantize.evaluation.fast_conv import Conv

CASES = [
    ((2, 3, 9, 11), (5, 3, 3, 3), {"strides": [2, 1], "dilations": [1, 2]}),
    ((1, 4, 7, 7), (8, 1, 3, 2), {"group": 4, "pads": [1, 0, 2, 1]}),
    ((2, 4, 7, 5), (4, 1, 3, 3), {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 4, 7, 5), (6, 2, 1, 1), {"group": 2, "strides": [2, 2]}),
    ((3, 4, 17), (2, 4, 3), {"strides": [2], "dilations": [2], "pads": [0, 3]}),
    ((1, 2, 5, 4, 6), (3, 2, 2, 3, 1), {"pads": [0, 1, 0, 1, 0, 0]}),
    ((1, 3, 8, 9), (2, 3, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("shape", "weights", "attributes"), CASES)
def test_equals_the_package(
    shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, object], biased: bool
) -> None:
    names = ["x", "w", "b"][: 3 if biased else 2]
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in (*names, "y")]
    graph = helper.make_graph([helper.make_node("Conv", names, ["y"], **attributes)], "g", values[:-1], values[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    rng = np.random.default_rng(0)
    shapes = (shape, weights, weights[:1])
    feeds = {name: rng.standard_normal(each) for name, each in zip(names, shapes, strict=False)}
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    (found,) = ReferenceEvaluator(model, new_ops=[Conv]).run(None, feeds)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, rtol=1e-12, atol=1e-12)
