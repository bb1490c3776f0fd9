"""The references compute what they say."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.accuracy.models import chain, data, graph, stages
from torq_byoc.accuracy.references.float_reference import EVALUATOR, ONNXRUNTIME, float_reference
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.accuracy.stages import stages_of
from torq_byoc.compilation.options import Options
from torq_byoc.frontend import prepare

FEEDS = {"x": data(1, seed=3)["x"]}


def _by_hand(feeds: np.ndarray) -> np.ndarray:
    """The relu of the chain's first convolution, element by element."""
    weights = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in chain().graph.initializer}
    padded = np.pad(feeds.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    result = np.zeros((1, 7, 8, 6))
    for y in range(8):
        for x in range(6):
            window = padded[0, :, y : y + 3, x : x + 3]
            result[0, :, y, x] = np.einsum("oikl,ikl->o", weights["w1"], window) + weights["b1"]
    return np.maximum(result, 0)


def test_float_reference_shows_every_tensor():
    reference = float_reference(prepare(chain()))
    assert reference.name == ONNXRUNTIME
    tensors = reference.tensors(FEEDS)
    np.testing.assert_allclose(tensors["r1"], _by_hand(FEEDS["x"]), atol=1e-5)
    np.testing.assert_array_equal(reference.outputs(FEEDS)["y"], tensors["y"])


def test_without_onnxruntime_the_evaluator_computes(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    reference = float_reference(prepare(chain()))
    assert reference.name == EVALUATOR
    np.testing.assert_allclose(reference.tensors(FEEDS)["r1"], _by_hand(FEEDS["x"]), atol=1e-5)
    np.testing.assert_array_equal(reference.outputs(FEEDS)["y"], reference.tensors(FEEDS)["y"])


def _with_cpu_part() -> onnx.ModelProto:
    """An operator that stays on the CPU between two that do not."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "first"),
        helper.make_node("CumSum", ["r", "axis"], ["s"], "running_sum"),
        helper.make_node("Add", ["s", "r"], ["y"], "last"),
    ]
    return graph(nodes, {"axis": np.array(3, np.int64)})


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_integer_reference_equals_the_programs_around_a_cpu_part(precision):
    calibration = data(4) if precision == "int8" else None
    model = stages_of(_with_cpu_part(), Options(precision=precision, calibration=calibration, effort=0), name="m")
    reference = IntegerReference.over(model.precise, model.parted.module, model.graphs)
    found = reference.run(FEEDS)["y"]
    assert len(reference.calls) >= 2
    np.testing.assert_array_equal(found, model.compiled.run(FEEDS)["y"])


def test_two_references_at_once_keep_apart():
    """Host modules call back by number: each into its own reference."""
    models = [
        stages_of(_with_cpu_part(), Options(precision="int8", calibration=data(4, seed=seed), effort=0), name="m")
        for seed in (0, 7)
    ]
    references = [IntegerReference.over(m.precise, m.parted.module, m.graphs) for m in models]
    first = references[0].run(FEEDS)["y"]
    second = references[1].run(FEEDS)["y"]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(references[0].run(FEEDS)["y"], first)


def test_integer_reference_of_a_single_program():
    model = stages("chain")
    reference = IntegerReference.over(model.precise, model.parted.module, model.graphs)
    np.testing.assert_array_equal(reference.run(FEEDS)["y"], model.compiled.run(FEEDS)["y"])
