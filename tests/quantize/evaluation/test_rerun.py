"""Runs of a model with some of its tensors changed."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.quantize.planning.models import residual_mismatch
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.evaluation.rerun import Rerun


def test_nothing_changed_gives_the_run_itself():
    model, data = residual_mismatch()
    feed = {"x": data["x"][:1]}
    np.testing.assert_array_equal(Rerun(model, feed).outputs({}, {})["y"], Evaluator(model).outputs(feed)["y"])


def test_a_change_reaches_everything_behind_it_and_nothing_else():
    """The branch of c is zeroed and x is doubled for all its readers: y = conv(2 x)."""
    model, data = residual_mismatch()
    feed = {"x": data["x"][:1]}
    run = Rerun(model, feed)
    found = run.outputs({"c": np.zeros_like, "x": lambda x: 2 * x}, {})["y"]
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    without = run.outputs({}, {"w2": np.zeros_like(weights["w2"])})["y"]
    np.testing.assert_allclose(found, 2 * without, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(run.outputs({}, {})["y"], Evaluator(model).outputs(feed)["y"])


def test_a_changed_result_is_changed_once():
    model, data = residual_mismatch()
    run = Rerun(model, {"x": data["x"][:1]})
    calls = []
    found = run.outputs({"y": lambda y: calls.append(1) or y + 1}, {})["y"]
    assert calls == [1]
    np.testing.assert_array_equal(found, run.tensors["y"] + 1)
