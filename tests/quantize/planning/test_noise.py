"""Measured noise of single causes, and its division where groups are not told apart."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantize.planning.models import residual_mismatch
from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.evaluation.rerun import Rerun
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.planning.noise import NoiseMeter, measured, rounding
from torq_byoc.quantize.planning.sources import rounded_weights, sources_of
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph
from torq_byoc.quantize.qdq.quantizable import OPSETS, Quantizable, quantizable
from torq_byoc.quantize.qdq.writer import written


@pytest.fixture(scope="module")
def meter() -> NoiseMeter:
    model, data = residual_mismatch()
    form = quantizable(model, OPSETS["int16"], correct_biases=False)
    feeds = [{"x": data["x"][i : i + 1]} for i in range(2)]
    table = calibrate(form.model, feeds, IntegerGraph(form.model).to_observe())
    quantized, quantizations = written(form, {"minmax": table.ranges("minmax")}, PrecisionPlan())
    weights = rounded_weights(quantized, ["a", "c", "y"])
    runs = [Rerun(form.model, feed) for feed in feeds]
    return NoiseMeter(form.model, Judge(form.model, feeds), quantizations, weights, runs)


def test_rounding_is_quantize_and_dequantize():
    change = rounding(TensorQuantization(np.float32(0.5), -3, "int8"))
    np.testing.assert_array_equal(change(np.array([0.24, 0.25, 0.75, -0.8, 1e9, -1e9])), [0, 0, 1, -1, 65, -62.5])


def test_noise_of_all_causes_is_what_the_judge_finds(meter):
    """In one run every tensor is rounded: the same as the QDQ model, whose weights and sums are the same reals."""
    from tests.quantize.planning.models import residual_mismatch
    from torq_byoc.quantize import quantize_model

    model, data = residual_mismatch()
    sources = sources_of(Quantizable(meter.model, {}))
    quantized = quantize_model(model, {"x": data["x"][:2]}, plan=PrecisionPlan(correct_biases=False))
    found = float(-10 * np.log10(meter.noise(sources)[0]))
    assert found == pytest.approx(meter.judge.of(quantized).sqnr, abs=0.3)


def test_causes_add_up(meter):
    sources = sources_of(Quantizable(meter.model, {}))
    single = measured(meter, sources, macs=1)
    assert len(single) == len(sources)
    assert float(np.sum(single)) == pytest.approx(float(meter.noise(sources)[0]), rel=0.35)
    assert float(single[0][0]) == pytest.approx(float(meter.noise(sources[:1])[0]))


def test_the_widest_tensors_matter_most(meter):
    """d is x with a small branch added: unlike channels make both of them coarse."""
    sources = sources_of(Quantizable(meter.model, {}))
    noise = {
        source.tensors or source.node: float(found[0])
        for source, found in zip(sources, measured(meter, sources, 1), strict=True)
    }
    assert min(noise[("x",)], noise[("d",)]) > 10 * max(noise[("b",)], noise[("c",)], noise["c"])


def test_little_work_leaves_groups_that_share_their_noise(meter, monkeypatch):
    monkeypatch.setattr("torq_byoc.quantize.planning.noise.FEWEST_RUNS", 3)
    sources = sources_of(Quantizable(meter.model, {}))
    found = measured(meter, sources, macs=10**15)
    half = len(sources) // 2
    assert len({float(value[0]) for value in found[:half]}) == 1
    assert float(np.sum(found[:half])) == pytest.approx(float(meter.noise(sources[:half])[0]))
