"""Means that rows are normalized with have 16 bits; other small tensors do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.quantize.models import parsed, scales_of
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.automatic import quantize
from torq_byoc.quantize.judge import Judge
from torq_byoc.quantize.precision_plan import PlannedRewrite, PrecisionPlan
from torq_byoc.quantize.rewrites import Candidate, Proposal
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.wide_statistics import wide_statistics

RNG = np.random.default_rng(0)
DATA = {"x": (RNG.standard_normal((12, 16, 64)) * RNG.uniform(0.5, 2.0, (12, 16, 1)) + 5.0).astype(np.float32)}
FRESH = (RNG.standard_normal((4, 1, 16, 64)) * RNG.uniform(0.5, 2.0, (4, 1, 16, 1)) + 5.0).astype(np.float32)
CONSTANTS = {"least": 1e-5, "w": RNG.standard_normal((16, 1, 1)), "three": 3.0}
NORMALIZATION = """
    m = ReduceMean<axes=[2]>(x) q = Mul(x, x) e = ReduceMean<axes=[2]>(q) k = Mul(m, m) v = Sub(e, k)
    a = Add(v, least) s = Sqrt(a) c = Sub(x, m) y = Div(c, s)"""


def proposals(body: str, outputs: str = "y") -> tuple[onnx.ModelProto, list[Proposal]]:
    model = parsed(body, "float[1,16,64] x", outputs, CONSTANTS)
    return model, list(wide_statistics(Candidate(model), ChannelStatistics(model)))


def test_a_normalization_written_out() -> None:
    model, (proposal,) = proposals(NORMALIZATION)
    assert proposal.candidate.wide == {"m", "e", "k", "v", "a", "s"} and proposal.candidate.model is model
    scales = scales_of(quantize_model(model, DATA, wide=proposal.candidate.wide))
    assert {name for name, scale in scales.items() if scale < 2e-3} == {"m", "e", "k", "v", "a", "s"}


@pytest.mark.parametrize(
    "body",
    [
        "m = ReduceMean<axes=[2]>(x) g = Conv<kernel_shape=[1], group=16>(m, w) y = Mul(x, g)",  # squeeze, excite
        "y = ReduceMean<axes=[2]>(x)",  # the answer
        "m = ReduceMean<axes=[2]>(x) y = Mul(m, three)",
        "y = Mul(x, x)",
    ],
)
def test_other_means_stay(body: str) -> None:
    assert proposals(body)[1] == []


def test_it_is_kept_said_planned_and_can_be_left_out() -> None:
    model = parsed(NORMALIZATION, "float[1,16,64] x", constants=CONSTANTS)
    judge = Judge(model, [{"x": x} for x in FRESH])
    found, plain = quantize(model, DATA), quantize(model, DATA, disabled=["wide_statistics"])
    assert [each.name for each in found.rewrites] == ["wide_statistics"] and plain.rewrites == ()
    assert judge.of(found.model).sqnr > judge.of(plain.model).sqnr + 3.0
    (applied,) = found.rewrites
    plan = PrecisionPlan(method=found.choice.methods["x"], rewrites=(PlannedRewrite(applied.name, applied.places),))
    scales = scales_of(quantize_model(model, DATA, plan=plan))
    assert scales["v"] < 1e-3 < scales["y"]
