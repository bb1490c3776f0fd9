"""Models and data that are wrong as they are given: errors of the lint are misses, and the cause is what they say."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.accuracy.models import chain, data, graph, stages
from tests.accuracy.quantized_models import damaged, quantized, with_own
from torq_byoc.accuracy.check import check
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.layers.float_model import with_float_model
from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.accuracy.verdict.thresholds import thresholds_of
from torq_byoc.compilation.options import Options

EVALUATION = data(3, seed=9)


def _quantized_here(model: onnx.ModelProto, calibration: dict[str, np.ndarray]) -> Stages:
    return stages_of(model, Options(precision="int8", calibration=calibration, effort=0), name="m")


def _mismatched() -> onnx.ModelProto:
    return with_own(quantized(), "r1_DequantizeLinear", 1, lambda v: 2 * v)


def test_an_error_of_the_lint_is_a_miss_and_the_cause():
    result = check(stages_of(_mismatched(), Options(effort=0), name="m"), EVALUATION)
    assert not result.passed
    assert [(miss.section, miss.where, miss.what) for miss in result.misses] == [
        ("lint", "r1_DequantizeLinear", "quantizer-pairs")
    ]
    assert (result.cause.stage, result.cause.node) == (Stage.GIVEN, "r1_DequantizeLinear")
    assert result.cause.remedy == result.lint[0].remedy


def test_errors_of_accepted_rules_are_none():
    limits = thresholds_of({"lint": {"accept": ["quantizer-pairs"]}})
    result = check(stages_of(_mismatched(), Options(effort=0), name="m"), EVALUATION, thresholds=limits)
    assert result.passed and result.cause.stage is Stage.QUANTIZATION
    assert [finding.rule for finding in result.lint] == ["quantizer-pairs"]


def test_warnings_are_no_misses():
    coarse = damaged(quantized(), "w2_quantized", lambda v: np.trunc(v / 8))
    result = check(stages_of(coarse, Options(effort=0), name="m"), EVALUATION)
    assert result.passed and [finding.rule for finding in result.lint] == ["weight-codes"]


def test_the_cure_of_a_damaged_layer_is_what_the_lint_says_of_it():
    coarse = damaged(quantized(), "w2_quantized", lambda v: np.trunc(v / 8))
    result = check(with_float_model(stages_of(coarse, Options(effort=0), name="m"), chain()), EVALUATION)
    assert not result.passed and result.cause.node == "conv2" and result.cause.stage is Stage.QUANTIZATION
    assert "with scales from the largest weight" in result.cause.remedy and "code 15 of 127" in result.cause.remedy


def test_an_error_that_the_outputs_do_not_show_is_the_cause_beside_the_float_model_too():
    slight = with_own(quantized(), "r1_DequantizeLinear", 1, lambda v: 1.001 * v)
    result = check(with_float_model(stages_of(slight, Options(effort=0), name="m"), chain()), EVALUATION)
    assert [miss.section for miss in result.misses] == ["lint"]
    assert (result.cause.stage, result.cause.node) == (Stage.GIVEN, "r1_DequantizeLinear")


def test_data_in_another_range_than_calibration():
    calibration = {"x": data(8, seed=1)["x"]}
    stages_ = _quantized_here(chain(), calibration)
    result = check(stages_, {"x": 255 * EVALUATION["x"]}, calibration=calibration)
    assert not result.passed and (result.cause.stage, result.cause.node) == (Stage.GIVEN, "x")
    assert "give data and calibration in one range" in result.cause.remedy
    assert any(finding.rule == "calibration-match" for finding in result.lint)


def test_an_input_that_is_never_stored_is_named_all_the_same():
    """The first thing that has a scale is a product of it."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("Exp", ["t"], ["e"], "exp"),
        helper.make_node("MatMul", ["e", "w"], ["y"], "dense"),
    ]
    weights = {"w": np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)}
    calibration = {"x": data(8, seed=1)["x"] / 8}
    result = check(_quantized_here(graph(nodes, weights), calibration), EVALUATION, calibration=calibration)
    assert not result.passed and (result.cause.stage, result.cause.node) == (Stage.GIVEN, "x")


def test_an_input_in_range_is_not_to_blame():
    result = check(stages("detector"), EVALUATION, calibration=data(8, seed=1))
    assert (result.cause.stage, result.cause.node) == (Stage.QUANTIZATION, "concat")


def test_values_that_are_no_numbers_are_blamed_on_where_they_arise():
    nodes = [helper.make_node("Log", ["x"], ["l"], "log"), helper.make_node("Relu", ["l"], ["y"], "relu")]
    calibration = {"x": np.abs(data(8, seed=1)["x"]) + 0.1}
    result = check(_quantized_here(graph(nodes, {}), calibration), EVALUATION)
    assert not result.passed and ("lint", "non-finite") in {(miss.section, miss.what) for miss in result.misses}
    assert result.cause.stage is Stage.GIVEN and result.cause.node == "log (Log), tensor l"
    assert "become NaN or infinite" in result.cause.detail


def test_a_layer_in_bf16_is_rounded_not_quantized():
    assert check(stages("chain", "bf16"), EVALUATION).cause.stage is Stage.BF16
