"""Rules about the scales that a model came with: every damage has its finding, and what is sound has none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.accuracy.lint.models import dense_qdq, model
from tests.accuracy.models import chain, data
from tests.accuracy.quantized_models import damaged, quantized, with_own
from tests.end_to_end.networks import QUANTIZED, Network
from torq_byoc.accuracy.lint import LintFinding, Severity, Subject, lint
from torq_byoc.errors import QuantizationError
from torq_byoc.frontend import prepare

EVALUATION = ({"x": data(1, seed=9)["x"]},)
SCALES = ("quantizer-pairs", "bias-scales", "weight-codes", "code-ranges")


def _scale_findings(given: onnx.ModelProto, feeds=EVALUATION) -> list[LintFinding]:
    prepared = prepare(given)
    return [finding for finding in lint(Subject(prepared, prepared, feeds)) if finding.rule in SCALES]


@pytest.mark.parametrize("form", ["QDQ", "QOperator", "ours"])
def test_sound_models_have_no_findings(form):
    assert _scale_findings(quantized(form)) == []


@pytest.mark.parametrize("network", [n for n in QUANTIZED if not n.slow], ids=lambda network: network.name)
def test_public_models_have_no_findings(network: Network):
    if not network.available:
        pytest.skip(f"{network.source} is not here")
    prepared = network.model()
    assert [one for one in lint(Subject(prepared, prepared, (network.feeds(prepared),))) if one.rule in SCALES] == []


@pytest.mark.parametrize(
    ("position", "change", "what"),
    [(1, lambda v: 2 * v, "scale: "), (2, lambda v: v + 3, "zero point: "), (2, np.zeros_like, "zero point: ")],
)
def test_codes_read_otherwise_than_written(position: int, change: Callable, what: str):
    (finding,) = _scale_findings(with_own(quantized(), "r1_DequantizeLinear", position, change))
    assert (finding.rule, finding.severity, finding.where) == ("quantizer-pairs", Severity.ERROR, "r1_DequantizeLinear")
    assert f"r1_QuantizeLinear writes with another {what}" in finding.what and finding.remedy


def test_codes_that_are_moved_in_between():
    """Both ends of a transposition."""
    constants = {"a": np.float32(0.1), "z": np.int8(3), "b": np.float32(0.2)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "a", "z"], ["q"], "write"),
        helper.make_node("Transpose", ["q"], ["t"], "move", perm=[1, 0]),
        helper.make_node("DequantizeLinear", ["t", "b", "z"], ["y"], "read"),
    ]
    (finding,) = _scale_findings(model(nodes, constants), ())
    assert finding.where == "read" and "scale: 0.1 there, 0.2 here" in finding.what


@pytest.mark.parametrize(("axis", "count"), [(1, 0), (0, 1)])
def test_channels_along_another_axis(axis: int, count: int):
    constants = {"s": np.array([0.1, 0.2, 0.3], np.float32), "z": np.zeros(3, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "write", axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "read", axis=axis),
    ]
    found = _scale_findings(model(nodes, constants, (3, 3)), ())
    assert ["axis: 1 there, 0 here" in finding.what for finding in found] == [True] * count


def _biased(*, input_scale: float = 0.1, weight_scale: float = 0.01, bias_scale: np.ndarray | None = None):
    """A product whose bias is in steps of its own where that is given."""
    codes = np.full((4, 6), 127)
    made = dense_qdq(codes, bias=np.arange(6), input_scale=input_scale, weight_scale=weight_scale)
    return made if bias_scale is None else damaged(made, "bs", lambda v: v * bias_scale)


@pytest.mark.parametrize("damage", [1.01, 0.25])
def test_a_channel_whose_bias_has_other_steps(damage: float):
    factors = np.ones(6)
    factors[2] = damage
    (finding,) = [one for one in _scale_findings(_biased(bias_scale=factors), ()) if one.rule == "bias-scales"]
    assert (finding.severity, finding.where) == (Severity.ERROR, "dense")
    assert f"{1 / damage:.4g} times the scale of the bias in 1 of 6 channels (channel 2 first)" in finding.what


def test_a_model_whose_biases_all_have_other_steps_is_made_by_another_rule():
    assert _scale_findings(_biased(bias_scale=np.linspace(2, 3, 6)), ()) == []


@pytest.mark.parametrize("tensor", ["x_scale", "w1_scale"])
def test_a_changed_scale_leaves_its_trace_in_the_bias(tensor: str):
    """Only one layer of the chain has a bias, so another one that is right stands beside it."""
    sound, changed = prepare(quantized()), prepare(damaged(quantized(), tensor, lambda v: 1.5 * v))
    both = onnx.compose.merge_models(
        onnx.compose.add_prefix(sound, "a_"), onnx.compose.add_prefix(changed, "b_"), io_map=[]
    )
    (finding,) = [one for one in lint(Subject(both, both)) if one.rule == "bias-scales"]
    assert finding.where == "b_conv1" and "1.5 times" in finding.what and "7 of 7 channels" in finding.what


@pytest.mark.parametrize(("shift", "count"), [(1, 0), (2, 1)])
def test_weights_in_a_small_part_of_their_codes(shift: int, count: int):
    """Half of the codes is what quantizers use that leave a bit free."""
    found = _scale_findings(damaged(quantized(), "w2_quantized", lambda v: np.trunc(v / 2**shift)), ())
    assert [(one.rule, one.severity, one.where) for one in found] == [
        ("weight-codes", Severity.WARNING, "conv2")
    ] * count
    assert all("9 of 9 channels reach code 31 of 127 at most" in one.what for one in found)


def test_one_channel_in_a_small_part_of_its_codes():
    def shifted(codes: np.ndarray) -> np.ndarray:
        codes[3] >>= 3
        return codes

    (finding,) = _scale_findings(damaged(quantized(), "w2_quantized", shifted), ())
    assert "the weights of 1 of 9 channels" in finding.what and finding.where == "conv2"


@pytest.mark.parametrize(("factor", "count"), [(4, 0), (64, 1)])
def test_a_channels_scale_that_stands_alone(factor: int, count: int):
    def larger(scales: np.ndarray) -> np.ndarray:
        scales[5] *= factor
        return scales

    found = _scale_findings(damaged(quantized(), "w2_scale", larger), ())
    assert len(found) == count
    assert all(one.rule == "weight-codes" and "channel 5's scale" in one.what for one in found)


def _stored(scale: float, zero: int, **maker) -> onnx.ModelProto:
    """An input scaled, cut and stored."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"], "input"),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["d"], "read"),
        helper.make_node("Abs", ["d"], ["a"], "abs")
        if not maker
        else helper.make_node(inputs=["d"], outputs=["a"], **maker),
        helper.make_node("QuantizeLinear", ["a", "s", "z"], ["c"], "store"),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"], "result"),
    ]
    constants = {"one": np.float32(1 / 16), "zero": np.int8(0), "s": np.float32(scale), "z": np.int8(zero)}
    return model(nodes, constants, (1, 256))


NORMAL = ({"x": np.random.default_rng(3).normal(size=(1, 256)).astype(np.float32)},)


@pytest.mark.parametrize(("scale", "count"), [(1 / 64, 0), (1 / 256, 1)])
def test_a_result_that_is_clipped(scale: float, count: int):
    """|x| of a normal x: below 2 but for one in twenty, below 1/2 for four in ten."""
    found = _scale_findings(_stored(scale, 0), NORMAL)
    assert [(one.rule, one.where) for one in found] == [("code-ranges", "abs, tensor a")] * count
    if found:
        values = np.abs(np.rint(NORMAL[0]["x"] * 16) / 16)
        outside = float(np.mean(values > 128 * scale))
        assert found[0].what.startswith(f"{outside:.1%} of the values lie outside -0.5 .. 0.4961")


def test_results_are_looked_at_in_every_sample():
    """What the first sample alone would say is wrong both ways."""
    quiet = {"x": NORMAL[0]["x"] / 16}
    (finding,) = _scale_findings(_stored(1 / 256, 0), (quiet, *NORMAL, *NORMAL))
    values = np.abs(np.rint(np.stack([quiet["x"], NORMAL[0]["x"], NORMAL[0]["x"]]) * 16) / 16)
    assert finding.what.startswith(f"{float(np.mean(values > 0.5)):.1%} of the values lie outside")
    assert finding.what.endswith("(over 3 samples)")
    assert len(_scale_findings(_stored(0.25, 0), (quiet,))) == 1
    assert _scale_findings(_stored(0.25, 0), (quiet, *NORMAL)) == []


def test_numbers_without_a_code_are_named():
    """The check may not take 0 / 0 for a result that is right."""
    stored = _stored(1 / 16, 3, op_type="Log", name="logarithm")
    found = lint(Subject(stored, stored, NORMAL))
    (finding,) = [one for one in found if one.rule == "non-finite"]
    codes = np.rint(NORMAL[0]["x"] * 16)
    assert (finding.severity, finding.where) == (Severity.ERROR, "logarithm (Log), tensor a")
    assert f"for the {int((codes < 0).sum())} that are NaN there is no code" in finding.what


def test_a_clip_that_the_quantizer_does_is_none():
    """Zero at the lowest code is a relu; an end at 6 is a relu6."""
    identity = {"op_type": "Neg", "name": "neg"}
    wide = ({"x": 7.9 * np.sign(NORMAL[0]["x"])},)
    assert _scale_findings(_stored(6 / 255, -128, **identity), NORMAL) == []
    assert _scale_findings(_stored(6 / 255, -128, **identity), wide) == []
    assert len(_scale_findings(_stored(3 / 255, -128, **identity), wide)) == 1


def test_an_input_in_another_range_is_named_and_nothing_behind_it():
    (finding,) = _scale_findings(_stored(1 / 256, 0), ({"x": 255 * NORMAL[0]["x"]},))
    assert finding.where == "input x" and "give data in the range" in finding.remedy


@pytest.mark.parametrize(("scale", "count"), [(0.25, 0), (1.0, 1)])
def test_a_result_that_uses_few_codes(scale: float, count: int):
    found = _scale_findings(_stored(scale, 0), NORMAL)
    assert [one.rule for one in found] == ["code-ranges"] * count
    assert all("the values use 4 of 256 codes" in one.what for one in found)


def test_results_with_few_values_of_their_own_use_few_codes():
    assert _scale_findings(_stored(1.0, 0, op_type="Sign", name="sign"), NORMAL) == []
    assert _scale_findings(_stored(1.0, 0, op_type="Sigmoid", name="sigmoid"), NORMAL) == []


def test_scales_of_zero_never_get_here():
    """They are refused when the model is prepared."""
    with pytest.raises(QuantizationError):
        prepare(damaged(quantized(), "r1_scale", np.zeros_like))


def test_scales_that_are_made_here_are_not_looked_at():
    """The layer check holds them against the float model."""
    precise = prepare(damaged(quantized(), "w2_quantized", lambda v: v >> 3))
    assert lint(Subject(prepare(chain()), precise, EVALUATION)) == ()
