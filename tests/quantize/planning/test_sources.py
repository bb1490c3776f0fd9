"""Causes of error: tensors that share codes are one, and every layer's weights are one."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.quantize.planning.models import joined, residual_mismatch
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.planning.sources import Source, rounded_weights, sources_of
from torq_byoc.quantize.qdq.quantizable import Quantizable


def test_causes_come_in_graph_order_with_weights_before_what_they_make():
    model, _ = residual_mismatch()
    assert sources_of(Quantizable(model, {})) == [
        Source(tensors=("x",)),
        Source(node="a"),
        Source(tensors=("b",)),
        Source(node="c"),
        Source(tensors=("c",)),
        Source(tensors=("d",)),
        Source(node="y"),
        Source(tensors=("y",)),
    ]


def test_a_concatenation_and_its_operands_are_one_cause():
    """A pool follows its input, so it is none."""
    model, _ = joined()
    tensors = [source.tensors for source in sources_of(Quantizable(model, {})) if source.tensors]
    assert tensors == [("x",), ("a", "b", "j", "r"), ("y",)]


def test_rounded_weights_are_within_half_a_step_of_the_real_ones():
    model, data = joined()
    found = rounded_weights(quantize_model(model, data), ["a", "b", "y"])
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert set(found) == {"a", "b", "y"}
    for node, weight in (("a", "w1"), ("b", "w2"), ("y", "w3")):
        position, values = found[node]
        peak = np.abs(constants[weight]).max(axis=(1, 2, 3), keepdims=True)
        assert position == 1
        assert np.all(np.abs(values - constants[weight]) <= peak / 127 * 0.501)
        assert np.any(values != constants[weight])
