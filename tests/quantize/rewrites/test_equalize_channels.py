"""Channels get alike sizes, and the model computes what it did."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.quantize.models import parsed
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.rewrites import Candidate, Proposal
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics
from torq_byoc.quantize.rewrites.equalize_channels import STRENGTHS, equalize_channels

RNG = np.random.default_rng(3)
SIZES = np.array([100.0, 1.0, 0.5, 0.25, 0.2, 0.1, 1.0, 0.0])
"""Of eight channels, one far above the others and one that holds nothing."""
FEEDS = [{"x": RNG.standard_normal((1, 3, 12, 12)).astype(np.float32)} for _ in range(3)]
ROWS = [{"x": RNG.standard_normal((1, 40, 8)).astype(np.float32)} for _ in range(3)]


def conv_constants(**more: np.ndarray) -> dict[str, np.ndarray]:
    first = RNG.standard_normal((8, 3, 3, 3)) * SIZES.reshape(-1, 1, 1, 1)
    return {"w": first, "b": SIZES * 0.3, "v": RNG.standard_normal((4, 8, 1, 1)), "c": np.ones(4), **more}


CASES = {
    "convolutions": ("t = Conv<kernel_shape=[3,3]>(x, w, b) r = Relu(t) y = Conv(r, v, c)", {}),
    "leaky": ("t = Conv<kernel_shape=[3,3]>(x, w, b) r = LeakyRelu<alpha=0.1>(t) y = Conv(r, v, c)", {}),
    "prelu": (
        "t = Conv<kernel_shape=[3,3]>(x, w, b) r = PRelu(t, s) y = Conv(r, v, c)",
        {"s": RNG.uniform(-0.5, 0.5, (8, 1, 1))},
    ),
    "pool": ("t = Conv<kernel_shape=[3,3]>(x, w, b) r = MaxPool<kernel_shape=[2,2]>(t) y = Conv(r, v, c)", {}),
    "two readers": ("t = Conv<kernel_shape=[3,3]>(x, w, b) p = Conv(t, v, c) q = Conv(t, v) y = Add(p, q)", {}),
    "grouped": (
        "t = Conv<kernel_shape=[3,3]>(x, w, b) y = Conv<group=2>(t, u)",
        {"u": RNG.standard_normal((4, 4, 1, 1))},
    ),
    "concatenation": (
        "p = Conv<kernel_shape=[3,3]>(x, w, b) q = Conv<kernel_shape=[3,3]>(x, w2) "
        "t = Concat<axis=1>(p, q) y = Conv(t, v2)",
        {"w2": 0.1 * RNG.standard_normal((4, 3, 3, 3)), "v2": RNG.standard_normal((4, 12, 1, 1))},
    ),
}


def proposals(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]] = FEEDS) -> list[Proposal]:
    statistics = ChannelStatistics(model)
    for feed in feeds:
        statistics.add(Evaluator(model).tensors(feed))
    return list(equalize_channels(Candidate(model), statistics))


def sizes(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]], layer: str, axis: int) -> np.ndarray:
    """Largest magnitude of every channel that the last layer of a kind reads."""
    name = [node for node in model.graph.node if node.op_type == layer][-1].input[0]
    values = np.concatenate([Evaluator(model).tensors(feed)[name] for feed in feeds])
    return np.abs(values).max(axis=tuple(i for i in range(values.ndim) if i != axis % values.ndim))


@pytest.mark.parametrize("name", CASES)
def test_channels_become_alike_and_results_stay(name: str) -> None:
    body, more = CASES[name]
    model = parsed(body, "float[1,3,12,12] x", constants=conv_constants(**more))
    found = proposals(model)
    assert len(found) == len(STRENGTHS)
    for proposal in found:
        for feed in FEEDS:
            wanted = Evaluator(model).outputs(feed)["y"]
            np.testing.assert_allclose(
                Evaluator(proposal.candidate.model).outputs(feed)["y"], wanted, atol=2e-6 * np.abs(wanted).max()
            )
    before, after = sizes(model, FEEDS, "Conv", 1), sizes(found[-1].candidate.model, FEEDS, "Conv", 1)
    alive = before > 0
    assert before[alive].max() > 50 * np.median(before[alive])
    np.testing.assert_allclose(after[alive], before.max(), rtol=1e-5)


@pytest.mark.parametrize(
    "body",
    ["t = LayerNormalization<axis=-1>(x, g, s) y = MatMul(t, m)", "n = Mul(x, g) t = Add(n, s) y = MatMul(t, m)"],
)
def test_gains_move_into_the_rows_behind(body: str) -> None:
    constants = {"g": np.maximum(SIZES, 0.05), "s": SIZES * 0.1, "m": RNG.standard_normal((8, 5))}
    model = parsed(body, "float[1,40,8] x", constants=constants)
    proposal = proposals(model, ROWS)[-1]
    for feed in ROWS:
        wanted = Evaluator(model).outputs(feed)["y"]
        np.testing.assert_allclose(
            Evaluator(proposal.candidate.model).outputs(feed)["y"], wanted, atol=2e-6 * np.abs(wanted).max()
        )
    after = sizes(proposal.candidate.model, ROWS, "MatMul", -1)
    np.testing.assert_allclose(after, after.max(), rtol=1e-5)


def test_a_clip_keeps_what_it_cuts() -> None:
    """Channels that reach the bound stay; the others grow, and stay below it with room for unseen data."""
    constants = conv_constants(low=np.array(0.0), high=np.array(6.0))
    body = "t = Conv<kernel_shape=[3,3]>(x, w, b) r = Clip(t, low, high) y = Conv(r, v, c)"
    constants["w"][1:7] *= 0.05 / np.abs(constants["w"][1:7]).max()
    model = parsed(body, "float[1,3,12,12] x", constants=constants)
    proposal = proposals(model)[-1]
    for feed in FEEDS:
        wanted = Evaluator(model).outputs(feed)["y"]
        np.testing.assert_allclose(
            Evaluator(proposal.candidate.model).outputs(feed)["y"], wanted, atol=2e-6 * np.abs(wanted).max()
        )
    before, after = sizes(model, FEEDS, "Conv", 1), sizes(proposal.candidate.model, FEEDS, "Conv", 1)
    assert before[0] == after[0] == 6.0
    grown = (before > 0) & (before < 6.0)
    np.testing.assert_allclose(after[grown], 6.0 / 1.25, rtol=1e-5)


def test_nothing_is_proposed_without_need_or_where_others_see_the_tensor() -> None:
    constants = conv_constants()
    body, inputs = CASES["convolutions"][0], "float[1,3,12,12] x"
    even = {**constants, "w": RNG.standard_normal((8, 3, 3, 3)), "b": np.zeros(8)}
    assert proposals(parsed(body, inputs, constants=even)) == []
    assert proposals(parsed(body, inputs, "y, r", constants=constants)) == []
    assert proposals(parsed(body + " z = Neg(r)", inputs, "y, z", constants=constants)) == []
    sigmoid = "t = Conv<kernel_shape=[3,3]>(x, w, b) r = Sigmoid(t) y = Conv(r, v, c)"
    assert proposals(parsed(sigmoid, inputs, constants=constants)) == []


def test_few_values_say_nothing() -> None:
    """One row a sample: that a channel was small three times does not make it small."""
    constants = {"g": np.maximum(SIZES, 0.05), "m": RNG.standard_normal((8, 5))}
    model = parsed("t = Mul(x, g) y = MatMul(t, m)", "float[1,8] x", constants=constants)
    assert proposals(model, [{"x": RNG.standard_normal((1, 8)).astype(np.float32)} for _ in range(3)]) == []
