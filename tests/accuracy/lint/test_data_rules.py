"""Rules about weights and data: NaN, types, concatenations, calibration, image form."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.accuracy.lint.models import model
from torq_byoc.accuracy.lint import LintFinding, Severity, Subject, lint
from torq_byoc.accuracy.lint.rules.input_form import DEVIATION, MEAN
from torq_byoc.quantize import quantize_model

Feeds = list[dict[str, np.ndarray]]


def _of(subject: Subject, rule: str) -> list[LintFinding]:
    return [finding for finding in lint(subject) if finding.rule == rule]


def test_the_first_node_that_makes_infinities_is_named() -> None:
    float_model = model(
        [
            helper.make_node("Exp", ["x"], ["e"], "exponential"),
            helper.make_node("Sub", ["e", "e"], ["y"], "difference"),
        ],
        {},
    )
    feeds = [{"x": np.array([[0.0, 1.0, 1000.0, 2.0]], np.float32)}]
    (finding,) = _of(Subject(float_model, float_model, feeds), "non-finite")
    assert finding.where.startswith("exponential (Exp)") and "1 of 4" in finding.what


def test_numbers_that_are_none_in_a_later_sample_alone() -> None:
    """Logarithms of what is negative, but in the first sample."""
    made = model([helper.make_node("Log", ["x"], ["y"], "logarithm")], {})
    feeds = [{"x": np.array([[first, 1.0, 2.0, 3.0]], np.float32)} for first in (4.0, -1.0, 5.0, -2.0, 0.0)]
    (finding,) = _of(Subject(made, made, feeds), "non-finite")
    assert finding.severity is Severity.ERROR
    assert finding.what == "3 of 12 values become NaN or infinite (in 3 of 5 samples)"


def test_an_operand_is_wide_that_is_wide_in_one_sample() -> None:
    made = model(
        [
            helper.make_node("Abs", ["x"], ["small"], "small"),
            helper.make_node("Mul", ["x", "k"], ["large"], "large"),
            helper.make_node("Concat", ["small", "large"], ["c"], "join", axis=1),
            helper.make_node("Relu", ["c"], ["y"], "after"),
        ],
        {"k": np.float32(640)},
    )
    feeds: Feeds = [{"x": np.full((1, 4), value, np.float32)} for value in (0.001, 0.002, 1.0)]
    precise = quantize_model(made, {"x": np.concatenate([feed["x"] / 10 for feed in feeds])})
    assert _of(Subject(made, precise, feeds[:2]), "concat-ranges")
    assert not _of(Subject(made, precise, [*feeds, {"x": np.full((1, 4), 30.0, np.float32)}]), "concat-ranges")


def test_stored_nan() -> None:
    float_model = model(
        [helper.make_node("Add", ["x", "c"], ["y"])], {"c": np.array([1, np.nan, 2, np.inf], np.float32)}
    )
    (finding,) = _of(Subject(float_model, float_model), "non-finite")
    assert (finding.where, finding.severity) == ("c", Severity.ERROR) and "2 of 4" in finding.what


def test_types_that_no_slice_computes() -> None:
    float_model = model(
        [
            helper.make_node("Cast", ["x"], ["d"], "widen", to=TensorProto.DOUBLE),
            helper.make_node("Sin", ["d"], ["s"], "sine"),
            helper.make_node("Cast", ["s"], ["y"], "narrow", to=TensorProto.FLOAT),
        ],
        {},
    )
    (finding,) = _of(Subject(float_model, float_model), "data-types")
    assert finding.where == "widen" and "2 operators compute in double" in finding.what and "Sin" in finding.what


def test_scores_beside_pixels_are_lost_in_one_scale() -> None:
    float_model = model(
        [
            helper.make_node("Sigmoid", ["x"], ["score"], "score"),
            helper.make_node("Mul", ["score", "k"], ["box"], "box"),
            helper.make_node("Concat", ["box", "score"], ["c"], "join", axis=1),
            helper.make_node("Relu", ["c"], ["y"], "after"),
        ],
        {"k": np.float32(640)},
    )
    feeds: Feeds = [{"x": np.array([[-3.0, -2.0, 0.0, 2.0]], np.float32)}]
    precise = quantize_model(float_model, {"x": feeds[0]["x"]})
    (finding,) = _of(Subject(float_model, precise, feeds), "concat-ranges")
    assert finding.where == "join, operand score" and finding.severity is Severity.WARNING
    assert "zero" in finding.what


def test_evaluation_data_beyond_the_calibrated_range() -> None:
    float_model = model([helper.make_node("Relu", ["x"], ["y"])], {})
    rng = np.random.default_rng(0)
    calibration: Feeds = [{"x": rng.normal(size=(1, 4)).astype(np.float32)} for _ in range(50)]
    alike: Feeds = [{"x": rng.permutation(feed["x"].reshape(-1)).reshape(1, 4)} for feed in calibration]
    assert not _of(Subject(float_model, float_model, alike, calibration), "calibration-match")
    for change, said in (
        (lambda x: x * 10, "outside"),
        (lambda x: x * 0.1, "spread"),
        (lambda x: x * 0.1 + 1.5, "mean"),
    ):
        (finding,) = _of(
            Subject(float_model, float_model, [{"x": change(f["x"])} for f in alike], calibration), "calibration-match"
        )
        assert said in finding.what and finding.where == "input x"


def _images(rng: np.random.Generator, count: int) -> np.ndarray:
    """Warm pictures in 0 .. 1: red is brighter than blue."""
    base = rng.uniform(0.0, 0.5, (count, 3, 8, 8))
    return (base + np.array([0.45, 0.25, 0.0])[:, None, None]).astype(np.float32)


def _normal(images: np.ndarray) -> np.ndarray:
    return ((images - MEAN[:, None, None]) / DEVIATION[:, None, None]).astype(np.float32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: _normal(x)[:, ::-1], "reverse order"),
        (lambda x: _normal(_normal(x)), "normalised twice"),
        (lambda x: x, "not normalised"),
        (lambda x: _normal(x) * 255, "not divided by 255"),
        (_normal, None),
    ],
)
def test_the_form_of_images_is_found_from_the_calibration_data(change, said: str | None) -> None:
    float_model = model([helper.make_node("Relu", ["x"], ["y"])], {}, (1, 3, 8, 8))
    rng = np.random.default_rng(3)
    calibration: Feeds = [{"x": image[None]} for image in _normal(_images(rng, 12))]
    evaluation: Feeds = [{"x": image[None].astype(np.float32)} for image in change(_images(rng, 12))]
    found = _of(Subject(float_model, float_model, evaluation, calibration), "input-form")
    assert [said in finding.what for finding in found] == [True] * bool(said)


def test_labels_tell_that_channels_are_swapped() -> None:
    weights = np.array([[1, 0, -1], [0, -1, 0], [-1, 0, 1]], np.float32).reshape(3, 3, 1, 1)
    float_model = model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("GlobalAveragePool", ["c"], ["p"]),
            helper.make_node("Flatten", ["p"], ["y"]),
        ],
        {"w": weights},
        (1, 3, 4, 4),
    )
    rng = np.random.default_rng(5)
    red_first = rng.uniform(0, 1, (20, 1, 3, 4, 4)).astype(np.float32)
    labels = np.where(red_first[:, 0, 0].mean(axis=(1, 2)) > red_first[:, 0, 2].mean(axis=(1, 2)), 0, 2)
    right: Feeds = [{"x": image} for image in red_first]
    swapped: Feeds = [{"x": np.ascontiguousarray(image[:, ::-1])} for image in red_first]
    assert not _of(Subject(float_model, float_model, right, labels=labels), "input-form")
    (finding,) = _of(Subject(float_model, float_model, swapped, labels=labels), "input-form")
    assert "reverse order" in finding.what and "input x" in finding.where


def _scores(labels: np.ndarray) -> list[LintFinding]:
    """Samples whose largest value is their class."""
    feeds = [{"x": np.eye(6, dtype=np.float32)[[index % 4 + 1]]} for index in range(len(labels))]
    made = model([helper.make_node("Relu", ["x"], ["y"], "relu")], {}, (1, 6))
    return _of(Subject(made, made, feeds, labels=labels), "label-shift")


@pytest.mark.parametrize(("shift", "word"), [(1, "smaller"), (-1, "larger"), (0, ""), (2, "")])
def test_labels_that_count_from_another_number(shift: int, word: str) -> None:
    found = _scores(np.arange(12) % 4 + 1 + shift)
    assert len(found) == bool(word)
    assert all(f"100.0% of 12 samples are right if every label is one {word}, 0.0%" in one.what for one in found)


def test_labels_that_are_wrong_for_other_reasons_are_no_shift() -> None:
    assert _scores(np.random.default_rng(0).permutation(np.arange(16) % 4 + 1)) == []


@pytest.mark.parametrize(("end", "severity"), [("Softmax", Severity.NOTE), ("Relu", Severity.ERROR)])
def test_infinity_that_reaches_an_output_is_an_error(end: str, severity: Severity) -> None:
    """1/0 before a softmax of its negative is a mask."""
    nodes = [
        helper.make_node("Reciprocal", ["x"], ["r"], "reciprocal"),
        helper.make_node("Abs", ["r"], ["a"], "abs"),
        helper.make_node("Neg", ["a"], ["n"], "negative"),
        helper.make_node(end, ["n" if end == "Softmax" else "a"], ["y"], "end"),
    ]
    made = model(nodes, {})
    (finding,) = _of(Subject(made, made, [{"x": np.array([[1, 2, 0, 4]], np.float32)}]), "non-finite")
    assert finding.severity is severity
