"""The judge sees every part of an output, however small beside the others."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model
from torq_byoc.quantize.evaluation.distance import MOST_SQNR, cosine, sqnr
from torq_byoc.quantize.judge import Judge


def _head() -> onnx.ModelProto:
    text = """<ir_version: 8, opset_import: ["" : 13]>
        g (float[1, 4] x) => (float[1, 8] y) <float k = {640.0}> {
            box0 = Sigmoid(x)
            box = Mul(box0, k)
            score = Sigmoid(x)
            y = Concat<axis=1>(box, score)
        }"""
    return prepare(onnx.parser.parse_model(text))


def test_scores_lost_beside_boxes_are_seen() -> None:
    model = _head()
    judge = Judge(model, [{"x": np.array([[-3.0, -1.0, 1.0, 3.0]], np.float32)}])
    (wanted,) = judge.wanted
    lost = wanted["y"].copy()
    lost[:, 4:] = 0
    score = judge.score([{"y": lost}])
    assert cosine(wanted["y"], lost) > 0.99999
    assert score.parts[("y", "box")] == MOST_SQNR
    assert score.parts[("y", "score")] == pytest.approx(0.0)
    assert (score.sqnr, score.cosine) == (pytest.approx(0.0), 0.0)


def test_a_quantized_model_scores_what_its_steps_say() -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[1, 1000] x) => (float[1, 1000] y) { y = Relu(x) }"""
    model = prepare(onnx.parser.parse_model(text))
    x = np.linspace(0, 1, 1000, dtype=np.float32).reshape(1, 1000)
    score = Judge(model, [{"x": x}]).of(quantize_model(model, {"x": x}))
    noise = (1 / 255) ** 2 / 12  # of a step of 1 / 255, uniform; the signal is uniform in 0 .. 1
    assert score.sqnr == pytest.approx(10 * np.log10((1 / 3) / noise), abs=0.3)


def test_one_sample_out_of_range_decides_the_whole_but_not_what_is_typical() -> None:
    """Steps of 1 / 255 on values uniform in 0 .. 1 leave 54 dB of three samples; nine tenths of the fourth are cut."""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[1, 1000] x) => (float[1, 1000] y) { y = Relu(x) }"""
    model = prepare(onnx.parser.parse_model(text))
    x = np.linspace(0, 1, 1000, dtype=np.float32).reshape(1, 1000)
    judge = Judge(model, [{"x": x}, {"x": 10 * x}, {"x": x}, {"x": x}])
    quantized = quantize_model(model, {"x": x})
    usual = 10 * np.log10((1 / 3) / ((1 / 255) ** 2 / 12))
    assert judge.of(quantized).sqnr < 3.0
    typical = judge.typical(quantized)
    assert typical.sqnr == pytest.approx(usual, abs=0.3) and typical.cosine > 0.99999


@pytest.mark.parametrize(
    ("reference", "found", "decibels"),
    [([3.0, 4.0], [3.0, 4.5], 20.0), ([0.0, 0.0], [0.0, 1.0], -MOST_SQNR), ([1.0], [np.nan], -MOST_SQNR)],
)
def test_signal_to_noise(reference: list[float], found: list[float], decibels: float) -> None:
    assert sqnr(np.array(reference), np.array(found)) == pytest.approx(decibels)
