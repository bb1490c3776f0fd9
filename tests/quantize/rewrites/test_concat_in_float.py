"""Concatenations at the end of a model: left to the CPU when their operands are unlike, and only then."""

from __future__ import annotations

import numpy as np
import onnx

from tests.quantize.models import parsed, scales_of
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.rewrites import Candidate, Proposal
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.concat_in_float import concat_in_float

DATA = {"x": np.random.default_rng(0).uniform(0.2, 1.0, (4, 2, 3, 5)).astype(np.float32)}
HEAD = "a = Mul(x, large) b = Sigmoid(x) j = Concat<axis=1>(a, b) "


def proposals(body: str, large: float = 640.0, outputs: str = "y") -> tuple[onnx.ModelProto, list[Proposal]]:
    constants = {"large": np.float32(large), "flat": np.array([1, 4, -1])}
    model = parsed(body, "float[1,2,3,5] x", outputs, constants)
    statistics = ChannelStatistics(model)
    for index in range(4):
        statistics.add(Evaluator(model).tensors({"x": DATA["x"][index : index + 1]}))
    return model, list(concat_in_float(Candidate(model), statistics))


def test_unlike_operands_keep_scales_of_their_own() -> None:
    model, (proposal,) = proposals(HEAD + "t = Transpose<perm=[0,1,3,2]>(j) y = Reshape(t, flat)")
    moved = {node.name for node in model.graph.node if node.op_type in ("Concat", "Transpose", "Reshape")}
    assert proposal.candidate.floats == moved
    assert proposal.places == tuple(node.name for node in model.graph.node if node.op_type == "Concat")
    assert proposal.candidate.model is model
    scales = scales_of(quantize_model(model, DATA, floats=proposal.candidate.floats))
    assert set(scales) == {"x", "a", "b"}
    assert scales["a"] > 2 and scales["b"] < 1 / 250


def test_alike_operands_stay_together() -> None:
    assert proposals(HEAD + "y = Reshape(j, flat)", large=2.0)[1] == []


def test_a_concatenation_that_the_npu_needs_stays_there() -> None:
    assert proposals(HEAD + "y = Relu(j)")[1] == []
    assert proposals(HEAD + "y = Reshape(j, flat) z = Relu(j)", outputs="y, z")[1] == []


def test_one_inside_another_takes_it_along() -> None:
    model, (proposal,) = proposals(HEAD + "y = Concat<axis=2>(j, j)")
    assert proposal.candidate.floats == {node.name for node in model.graph.node if node.op_type == "Concat"}
