"""Inputs with outliers in two parts: the same in real arithmetic, finer in 8 bits, and at a bounded cost."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.quantize.models import parsed, scales_of, shape_text
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.float64 import float64_outputs
from torq_byoc.quantize.quantization import quantization_of
from torq_byoc.quantize.rewrites import Candidate, Proposal
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.split_outliers import split_outliers

RNG = np.random.default_rng(6)
SAMPLES, PEAK = 16, 100.0
ELSEWHERE = " z = MatMul(u, e)"
"""A layer of another input: most of the model's work."""
CONV = "t = Conv<strides=[2,1], pads=[1,0,2,1]>(x, w, b)"


def heavy(shape: tuple[int, ...], channels: tuple[int, ...] = (1, 2), axis: int = 1) -> dict[str, np.ndarray]:
    """Samples of size 0.5; in some channels one value is ``PEAK`` and another one its opposite."""
    values = RNG.normal(0.0, 0.5, (SAMPLES, *shape)).clip(-2.0, 2.0)
    for channel in channels:
        place = [0] * values.ndim
        place[axis] = channel
        values[tuple(place)] = PEAK
        place[0] = SAMPLES - 1
        values[tuple(place)] = -PEAK
    return {"x": values.astype(np.float32), "u": RNG.uniform(0.0, 1.0, (SAMPLES, 64)).astype(np.float32)}


def feeds_of(data: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [{name: value[index : index + 1] for name, value in data.items()} for index in range(SAMPLES)]


def model_of(body: str, shape: tuple[int, ...], weights: tuple[int, ...], work: int = 3000) -> onnx.ModelProto:
    """``y`` from ``x``, and ``z`` by so many times 64 products from ``u``."""
    given = {"w": RNG.standard_normal(weights), "b": RNG.standard_normal(6), "e": RNG.standard_normal((64, work))}
    used = {name: value for name, value in given.items() if name != "b" or "b)" in body or "(b" in body}
    return parsed(body + ELSEWHERE, f"float[1,{shape_text(shape)}] x, float[1,64] u", "y, z", used)


def proposals(model: onnx.ModelProto, data: dict[str, np.ndarray], **more: object) -> list[Proposal]:
    statistics = ChannelStatistics(model)
    for feed in feeds_of(data):
        statistics.add(feed)
    return list(split_outliers(Candidate(model), statistics, **more))


def outputs(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By onnxruntime, nothing fused or reordered."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([value.name for value in model.graph.output], session.run(None, feed), strict=True))


@pytest.mark.parametrize("behind", [" y = Relu(t)", " y = Sigmoid(t)", ""])
@pytest.mark.parametrize(
    ("body", "shape", "axis", "weights", "chosen"),
    [
        (CONV, (4, 16, 15), 1, (6, 4, 3, 2), (6, 2, 3, 2)),
        ("t = Conv<group=2>(x, w, b)", (4, 16, 15), 1, (6, 2, 3, 3), (6, 2, 3, 3)),
        ("t = ConvTranspose<strides=[2,2]>(x, w, b)", (4, 8, 9), 1, (4, 6, 2, 2), (2, 6, 2, 2)),
        ("m = MatMul(x, w) t = Add(m, b)", (150, 4), -1, (4, 6), (2, 6)),
        ("m = MatMul(x, w) t = Add(b, m)", (7, 25, 4), -1, (4, 6), (2, 6)),
        ("t = MatMul(x, w)", (180, 4), -1, (4, 6), (2, 6)),
        ("t = Gemm(x, w, b)", (200,), -1, (200, 6), (2, 6)),
    ],
)
def test_the_model_computes_the_same(
    body: str, shape: tuple, axis: int, weights: tuple, chosen: tuple, behind: str
) -> None:
    data = heavy(shape, axis=axis)
    model = model_of(body + behind if behind else body.replace("t =", "y ="), shape, weights)
    found = proposals(model, data)
    assert [each.strength for each in found] == [0.75, 1.0]
    for proposal in found:
        rewritten = proposal.candidate.model
        onnx.checker.check_model(rewritten, full_check=True)
        (place,) = proposal.places
        nodes = {node.name: node for node in rewritten.graph.node}
        constants = {tensor.name: tuple(tensor.dims) for tensor in rewritten.graph.initializer}
        assert constants[nodes[place].input[1]] == weights
        assert constants[nodes[f"{place}_outliers"].input[1]] == chosen
        for feed in feeds_of(data):
            wanted, got = outputs(model, feed)["y"], outputs(rewritten, feed)["y"]
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())


def test_parts_have_steps_of_their_own_and_the_outputs_gain_what_these_say() -> None:
    """Rounding with steps d leaves d^2 / 12 an element, and nothing where the part is zero."""
    data = heavy((4, 16, 15))
    model = model_of(CONV + " y = Relu(t)", (4, 16, 15), (6, 4, 3, 2))
    mild = proposals(model, data)[0]
    assert "more multiply-accumulates" in mild.reason and mild.least_gain == 3.0
    candidate = mild.candidate
    result = quantization_of(
        candidate.model, data, method="minmax", floats=candidate.floats, methods=candidate.methods
    ).model
    scales = scales_of(result)
    bound = PEAK / 8
    assert scales["x_usual"] == pytest.approx((bound - data["x"].clip(-bound, bound).min()) / 255)
    assert scales["x_chosen"] == pytest.approx(2.0 * 2 * (PEAK - bound) / 255), "room for values twice as large"
    plain = quantization_of(model, data, method="minmax").model
    wanted = [outputs(model, feed)["y"] for feed in feeds_of(data)]

    def decibels(quantized: onnx.ModelProto) -> float:
        found = [float64_outputs(quantized, feed)["y"] for feed in feeds_of(data)]
        return sqnr(np.concatenate(wanted), np.concatenate(found))

    assert decibels(result) > decibels(plain) + 10.0


def test_what_speaks_for_no_split() -> None:
    body, shape, weights = CONV + " y = Relu(t)", (4, 16, 15), (6, 4, 3, 2)
    data = heavy(shape)
    model = model_of(body, shape, weights)
    assert proposals(model, data)
    assert proposals(model, data, within=lambda _: False) == []
    assert proposals(model, heavy(shape, channels=())) == [], "no outliers"
    rare = {**data, "x": np.where(np.abs(data["x"]) == PEAK, 1.0, 0.0).astype(np.float32)}
    assert proposals(model, rare) == [], "zeros need no steps"
    assert proposals(model_of(body.replace("(x,", "(p,").replace("t =", "p = Neg(x) t ="), shape, weights), data) == []


@pytest.mark.parametrize(("work", "found"), [(304, 2), (303, 0)])
def test_the_work_that_is_added_is_bounded(work: int, found: int) -> None:
    """9 x 15 results in 6 channels of 24 products each are to be half of all work, and the rest is 64 x ``work``."""
    shape, weights = (4, 16, 15), (6, 4, 3, 2)
    model = model_of(CONV + " y = Relu(t)", shape, weights, work)
    assert len(proposals(model, heavy(shape, channels=(0, 1, 2, 3)))) == found
    assert len(proposals(model, heavy(shape, channels=(0, 3)))) == 2, "half of the channels, half of that"
