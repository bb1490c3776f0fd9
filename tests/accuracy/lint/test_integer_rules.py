"""Rules about the integers that the NPU computes with: exact limits, from both sides."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.accuracy.lint.models import dense_qdq, model
from torq_byoc.accuracy.lint import LintFinding, Severity, Subject, lint
from torq_byoc.quantize import quantize_model

EXACT = {"input_scale": 2.0**-3, "weight_scale": 2.0**-7}
"""Scales whose product float32 holds exactly, so that a bias is what it says to the last step."""


def _findings(precise: onnx.ModelProto, rule: str) -> list[LintFinding]:
    return [finding for finding in lint(Subject(precise, precise)) if finding.rule == rule]


def test_products_are_read_channel_by_channel() -> None:
    codes = np.array([[1, -2], [3, 4], [-5, 6]])
    (product,) = Subject(*[dense_qdq(codes, bias=np.array([7, -8]), input_zero=-3)] * 2).products
    assert product.codes.tolist() == codes.T.tolist()
    assert product.bias_codes.tolist() == [7, -8]
    assert product.folded_bias.tolist() == [7 + 3 * -1, -8 + 3 * 8]
    assert (product.input_zero, product.input_codes, product.output_scale) == (-3, (-128, 127), 0.5)


def test_a_convolution_keeps_its_bias_through_our_quantizer() -> None:
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(3, 2, 3, 3)).astype(np.float32), "b": np.array([1.0, -2.0, 0.25], np.float32)}
    float_model = model([helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv")], constants, (1, 2, 5, 5))
    quantized = quantize_model(float_model, {"x": rng.normal(size=(2, 2, 5, 5)).astype(np.float32)})
    (product,) = Subject(float_model, quantized).products
    assert product.codes.shape == (3, 18)
    assert product.bias == pytest.approx(constants["b"], abs=1e-3)
    real = product.codes * product.scales[:, None]
    assert real == pytest.approx(constants["w"].reshape(3, -1), abs=float(product.scales.max()) / 2 + 1e-6)


@pytest.mark.parametrize(("bias", "severity"), [(2**31 - 1 - 2540, None), (2**31 - 1, Severity.ERROR)])
def test_a_bias_overflows_with_the_zero_point_folded_in(bias: int, severity: Severity | None) -> None:
    precise = dense_qdq(np.full((20, 1), 1), bias=np.array([bias]), input_zero=-127, **EXACT)
    found = _findings(precise, "bias-overflow")
    assert [finding.severity for finding in found if finding.severity is Severity.ERROR] == [severity] * bool(severity)
    if severity:
        assert found[0].where == "dense" and "1 of 1 channels" in found[0].what


def test_a_channel_whose_bias_eats_its_weights_is_named() -> None:
    precise = dense_qdq(np.array([[2, 100], [1, 90]]), bias=np.array([2**30, 5]))
    (finding,) = _findings(precise, "bias-overflow")
    assert finding.severity is Severity.NOTE and "1 channels" in finding.what and "2 of 127" in finding.what


def test_the_accumulator_bound_is_reached_by_some_input_and_not_passed_by_any() -> None:
    codes = np.full((4, 1), 127)
    room = 2**31 - 1 - 4 * 127 * 127
    assert not _findings(dense_qdq(codes, bias=np.array([room]), **EXACT), "accumulator-bound")
    (finding,) = _findings(dense_qdq(codes, bias=np.array([room + 1]), **EXACT), "accumulator-bound")
    assert "channel 0" in finding.what and finding.severity is Severity.WARNING


def test_int16_inputs_have_wider_accumulators() -> None:
    codes = np.full((1000, 1), 127)
    assert not _findings(dense_qdq(codes, code_type=np.int16), "accumulator-bound")


def test_a_multiplier_too_large_for_the_unit() -> None:
    (finding,) = _findings(dense_qdq(np.ones((2, 2)), input_scale=1e12, output_scale=1e-3), "multiplier-range")
    assert finding.severity is Severity.ERROR and "2^31" in finding.what


@pytest.mark.parametrize(("ratio", "count"), [(2.0**-22, 0), (2.0**-25, 1)])
def test_a_channel_far_below_the_others_has_a_coarse_multiplier(ratio: float, count: int) -> None:
    found = _findings(dense_qdq(np.ones((2, 2)), weight_scale=np.array([0.01, 0.01 * ratio])), "multiplier-range")
    assert len(found) == count
    if count:
        assert "channel 1" in found[0].what and found[0].severity is Severity.WARNING


def test_dead_channels_and_dead_layers() -> None:
    (channel,) = _findings(dense_qdq(np.array([[5, 0, 1], [6, 0, 0]])), "dead-weights")
    assert channel.severity is Severity.NOTE and "1 of 3 channels" in channel.what and "channel 1" in channel.what
    (layer,) = _findings(dense_qdq(np.zeros((2, 2))), "dead-weights")
    assert layer.severity is Severity.ERROR


def test_a_sound_layer_has_no_findings() -> None:
    rng = np.random.default_rng(1)
    precise = dense_qdq(rng.integers(-127, 128, (16, 8)), bias=rng.integers(-1000, 1000, 8))
    assert lint(Subject(precise, precise)) == ()
