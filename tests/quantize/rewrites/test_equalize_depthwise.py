"""Channels that depthwise convolutions read get alike sizes, at no loss anywhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.quantize.models import parsed
from torq_byoc.errors import QuantizationError
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.automatic import quantize
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.evaluation.float64 import float64_outputs
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.precision_plan import PlannedRewrite, PrecisionPlan
from torq_byoc.quantize.rewrites.equalize_depthwise import has_depthwise

RNG = np.random.default_rng(7)
SIZES = np.array([8.0, 4.0, 2.0, 1.0, 0.5, 0.5, 0.25, 0.0])
CONSTANTS = {
    "w": RNG.standard_normal((8, 3, 1, 1)) * SIZES.reshape(-1, 1, 1, 1),
    "b": SIZES * 0.2,
    "v": RNG.standard_normal((8, 1, 3, 3)) / np.maximum(SIZES, 0.1).reshape(-1, 1, 1, 1),
    "u": RNG.standard_normal((4, 8, 1, 1)),
    "zero": 0.0,
    "twenty": 20.0,
}
DEPTHWISE = "t = Conv(x, w, b) r = {clamp} y = Conv<group=8>(r, v)"
DATA = {"x": RNG.standard_normal((12, 3, 12, 12)).astype(np.float32)}
FRESH = [{"x": RNG.standard_normal((1, 3, 12, 12)).astype(np.float32)} for _ in range(4)]


def model_of(body: str) -> onnx.ModelProto:
    return parsed(body, "float[1,3,12,12] x", "y, z" if "z =" in body else "y", CONSTANTS)


def stored_codes(model: onnx.ModelProto) -> list[np.ndarray]:
    return [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer if len(tensor.dims) == 4]


@pytest.mark.parametrize("clamp", ["Relu(t)", "LeakyRelu<alpha=0.1>(t)", "Identity(t)"])
def test_codes_of_the_weights_stay_and_results_come_nearer(clamp: str) -> None:
    model = model_of(DEPTHWISE.format(clamp=clamp))
    found = quantize(model, DATA, disabled=["scale_outputs"])
    plain = quantize(model, DATA, disabled=["scale_outputs", "equalize_depthwise"])
    (applied,) = found.rewrites
    assert (applied.name, applied.before, applied.places) == ("equalize_depthwise", None, (model.graph.node[0].name,))
    for new, old in zip(stored_codes(found.model), stored_codes(plain.model), strict=True):
        assert np.abs(new.astype(int) - old).max() <= 1, "but for scales that are float32 numbers"
    judge = Judge(model, FRESH)
    assert judge.of(found.model).sqnr > judge.of(plain.model).sqnr + 3.0
    before, after = (Evaluator(each).tensors(FRESH[0]) for each in (model, found.exact))
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-4, atol=1e-5)
    name = found.exact.graph.node[-1].input[0]
    peak = np.abs(after[name]).max(axis=(0, 2, 3))[:7]
    assert peak.max() / peak.min() < 2.5 and np.abs(before[name]).max(axis=(0, 2, 3))[:7].min() < peak.max() / 8


def test_a_clip_that_is_reached_lets_nothing_grow() -> None:
    """Channels that stay below the bound may grow until they reach it."""
    model = model_of(DEPTHWISE.format(clamp="Clip(t, zero, twenty)"))
    found = quantize(model, DATA, disabled=["scale_outputs"])
    assert [each.name for each in found.rewrites] == ["equalize_depthwise"]
    before, after = (Evaluator(each).tensors(FRESH[0]) for each in (model, found.exact))
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-4, atol=1e-5)


def test_where_another_layer_reads_the_channels_too_nothing_is_certain() -> None:
    body = "t = Conv(x, w, b) r = Relu(t) p = Conv<group=8>(r, v) z = Conv(r, u) y = Conv(p, u)"
    assert quantize(model_of(body), DATA, disabled=["equalize_channels"]).rewrites == ()


def test_models_without_depthwise_convolutions_are_not_looked_at() -> None:
    assert has_depthwise(model_of(DEPTHWISE.format(clamp="Relu(t)")))
    assert not has_depthwise(model_of("t = Conv(x, w, b) y = Conv(t, u)"))


def test_a_plan_says_it_again() -> None:
    model = model_of(DEPTHWISE.format(clamp="Relu(t)"))
    found = quantize(model, DATA, method="minmax")
    plan = PrecisionPlan(rewrites=tuple(PlannedRewrite(each.name, each.places) for each in found.rewrites))
    again = quantize_model(model, DATA, plan=plan)
    (feed, *_) = samples(model, DATA)
    assert np.array_equal(*(float64_outputs(each, feed)["y"] for each in (again, found.model)))


def test_what_it_leaves_is_no_reason_to_do_it_again() -> None:
    model = model_of(DEPTHWISE.format(clamp="Relu(t)"))
    (applied,) = quantize(model, DATA, method="minmax", disabled=["scale_outputs"]).rewrites
    once = PlannedRewrite(applied.name, applied.places)
    with pytest.raises(QuantizationError, match="equalize_depthwise"):
        quantize_model(model, DATA, plan=PrecisionPlan(rewrites=(once, once)))
