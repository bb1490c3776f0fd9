"""Bounded results that end a model get codes of 16 bits where they are near their bounds."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.quantize.models import parsed, scales_of
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.automatic import quantize
from torq_byoc.quantize.data import samples
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.precision_plan import PlannedRewrite, PrecisionPlan
from torq_byoc.quantize.rewrites import Candidate, Proposal
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.replay import replayed
from torq_byoc.quantize.rewrites.wide_outputs import wide_outputs

RNG = np.random.default_rng(0)
CONFIDENT = {"x": RNG.normal(0.0, 6.0, (12, 40)).astype(np.float32)}
UNSURE = {"x": RNG.normal(0.0, 0.5, (12, 40)).astype(np.float32)}
CLEAR = {"x": np.eye(10, dtype=np.float32)[RNG.integers(0, 10, (12, 4))].reshape(12, 40) * 6 + UNSURE["x"]}
"""Rows with one class far ahead."""
CONSTANTS = {"rows": np.array([4, 10]), "whole": np.array([1, 40])}
SOFTMAX = "r = Reshape(x, rows) y = Softmax<axis=1>(r)"


def proposals(body: str, data: dict[str, np.ndarray], outputs: str = "y") -> tuple[onnx.ModelProto, list[Proposal]]:
    model = parsed(body, "float[1,40] x", outputs, CONSTANTS)
    statistics = ChannelStatistics(model)
    for feed in samples(model, data):
        statistics.add(Evaluator(model).tensors(feed))
    return model, list(wide_outputs(Candidate(model), statistics))


@pytest.mark.parametrize(
    "body", [SOFTMAX, "y = Sigmoid(x)", "r = Tanh(x) t = Reshape(r, rows) y = Transpose<perm=[1,0]>(t)"]
)
def test_results_near_their_bounds_become_wide(body: str) -> None:
    model, (proposal, further) = proposals(body, CONFIDENT)
    (wide,) = proposal.candidate.wide
    assert (proposal.strength, further.strength) == (0.5, 1.0)
    assert further.candidate.wide == {wide, "x"} and further.candidate.methods["x"] == "headroom"
    (place,) = proposal.places
    made = next(node for node in model.graph.node if node.output[0] == wide)
    assert made.name == place and made.op_type in ("Softmax", "Sigmoid", "Tanh")
    assert proposal.candidate.model is model
    quantized = quantize_model(model, CONFIDENT, wide=proposal.candidate.wide)
    scales = scales_of(quantized)
    assert scales[wide] == pytest.approx(1 / 32767, rel=0.01) and scales["x"] > 0.05


def test_results_far_from_their_bounds_stay() -> None:
    assert proposals(SOFTMAX, UNSURE)[1] == []
    assert proposals("y = Sigmoid(x)", UNSURE)[1] == []


def test_what_the_npu_reads_on_stays() -> None:
    assert proposals("s = Sigmoid(x) y = Mul(s, x)", CONFIDENT)[1] == []
    assert proposals("s = Sigmoid(x) y = Reshape(s, rows) z = Neg(s)", CONFIDENT, "y, z")[1] == []


def test_it_is_kept_said_planned_and_can_be_left_out() -> None:
    """Steps of 1/255 are all the error there is."""
    model = parsed(SOFTMAX, "float[1,40] x", constants=CONSTANTS)
    found = quantize(model, CLEAR)
    (applied,) = found.rewrites
    assert applied.name == "wide_outputs" and applied.before is not None and applied.after is not None
    assert applied.after > applied.before + 1.0
    assert "wide_outputs at y: 100% of the energy" in next(iter(found.remarks()))
    assert quantize(model, CLEAR, disabled=["wide_outputs"]).rewrites == ()
    plan = PrecisionPlan(rewrites=(PlannedRewrite(applied.name, applied.places, 0.5),))
    candidate = replayed(model, tuple(samples(model, CLEAR)), plan.rewrites)
    assert candidate.wide == {"y"}
    powers = np.exp(CLEAR["x"].reshape(-1, 10).astype(np.float64))
    largest = (powers / powers.sum(axis=1, keepdims=True)).max()
    assert scales_of(quantize_model(model, CLEAR, plan=plan))["y"] == pytest.approx(largest / 32767, rel=1e-5)
