"""Channels of an output in alike sizes on the NPU, and in their own behind it."""

from __future__ import annotations

import numpy as np
import onnx

from tests.quantize.models import parsed
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.evaluation.float64 import float64_outputs
from torq_byoc.quantize.rewrites import Candidate, Proposal
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.scale_outputs import scale_outputs

RNG = np.random.default_rng(8)
DATA = {"x": RNG.uniform(0.0, 1.0, (4, 3, 10, 10)).astype(np.float32)}
FEEDS = [{"x": DATA["x"][index : index + 1]} for index in range(4)]
SIZES = np.array([5.0, 0.05, 0.1, 0.02, 1.0])
BODY = "t = Conv<kernel_shape=[3,3]>(x, w, b) y = Relu(t)"


def proposals(
    body: str = BODY, outputs: str = "y", sizes: np.ndarray = SIZES
) -> tuple[onnx.ModelProto, list[Proposal]]:
    weights = np.abs(RNG.standard_normal((5, 3, 3, 3))) * sizes.reshape(-1, 1, 1, 1)
    model = parsed(body, "float[1,3,10,10] x", outputs, {"w": weights, "b": 0.1 * sizes})
    statistics = ChannelStatistics(model)
    for feed in FEEDS:
        statistics.add(Evaluator(model).tensors(feed))
    return model, list(scale_outputs(Candidate(model), statistics))


def test_the_model_computes_the_same_and_small_channels_survive() -> None:
    model, (proposal,) = proposals()
    rewritten = proposal.candidate.model
    wanted = Evaluator(model).outputs(FEEDS[0])["y"]
    np.testing.assert_allclose(Evaluator(rewritten).outputs(FEEDS[0])["y"], wanted, rtol=1e-5, atol=1e-6)
    (product,) = proposal.candidate.floats
    (node,) = [node for node in rewritten.graph.node if node.name == product]
    assert (node.op_type, list(node.output)) == ("Mul", ["y"])

    def smallest(quantized: onnx.ModelProto) -> float:
        return sqnr(wanted[:, 3], float64_outputs(quantized, FEEDS[0])["y"][:, 3])

    plain = smallest(quantize_model(model, DATA))
    assert smallest(quantize_model(rewritten, DATA, floats=proposal.candidate.floats)) > plain + 20


def test_alike_channels_and_tensors_with_readers_stay() -> None:
    assert proposals(sizes=np.ones(5))[1] == []
    assert proposals(BODY + " z = Neg(y)", "y, z")[1] == []
    assert proposals("t = Conv<kernel_shape=[3,3]>(x, w, b) y = Sigmoid(t)")[1] == []
