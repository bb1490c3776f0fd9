"""Which tensors count as layers, and where the stages keep them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.accuracy.models import data, stages
from torq_byoc.accuracy.layers.layers import INPUT, layers_of
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator


def test_a_layer_ends_where_its_result_is_stored():
    layers = layers_of(stages("chain"))
    assert [layer.tensor for layer in layers] == ["x", "r1", "r2", "g", "f", "y"]
    assert [layer.op for layer in layers] == [INPUT, "Relu", "Relu", "GlobalAveragePool", "Flatten", "MatMul"]


def test_layers_of_a_float_model_are_its_nodes():
    layers = layers_of(stages("chain", "bf16"))
    assert [layer.tensor for layer in layers] == ["c1", "r1", "c2", "r2", "g", "f", "y"]
    assert all(layer.codes is None for layer in layers)


@pytest.mark.parametrize("name", ["chain", "detector"])
def test_places_hold_the_codes_of_their_layers(name):
    """The integers at a layer's place are its codes in real arithmetic, to a step or two."""
    model = stages(name)
    feeds = {"x": data(1, seed=5)["x"]}
    reference = IntegerReference.over(model.precise, model.parted.module, model.graphs)
    reference.run(feeds)
    exact = Float64Evaluator(model.precise).tensors(feeds)
    seen = 0
    for layer in layers_of(model):
        if layer.place:
            (call,) = (call for call in reference.calls if call.symbol == layer.place.symbol)
            found = call.tensors[layer.place.tensor].astype(int)
            assert np.abs(found - exact[layer.codes.name]).max() <= 2, layer.tensor
            seen += 1
    assert seen >= 5


def test_operands_of_a_concatenation():
    (layer,) = (layer for layer in layers_of(stages("detector")) if layer.op == "Concat")
    assert (layer.operands, layer.axis) == ((("box", 0, 4), ("cls", 4, 9)), 1)
