"""What is never fit for shipping: results that are no numbers, limits that limit nothing, metrics that exit."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import helper

from tests.accuracy.lint.models import model as model_of
from torq_byoc import check_model
from torq_byoc.accuracy.verdict.thresholds import thresholds_of
from torq_byoc.errors import AccuracyError
from torq_byoc.quantize.user_metric import evaluate_metric, load_metric

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def test_nan_in_weights_is_a_miss_although_both_models_agree() -> None:
    sick = model_of([helper.make_node("Mul", ["x", "k"], ["y"], "scale")], {"k": np.float32(np.nan)})
    result = check_model(sick, {"x": X, "labels": np.array([0, 1])}, precision="bf16")
    assert not result.passed
    assert [miss.what for miss in result.misses] == ["non-finite", "not_numbers"]
    assert result.cause is not None and result.cause.node == "k"
    assert result.outputs[0].not_numbers == X.size
    assert result.labels is not None and result.labels.npu_top1 == 0.0


def test_labels_in_the_thresholds_need_labels_in_the_data() -> None:
    sound = model_of([helper.make_node("Relu", ["x"], ["y"])], {})
    limits = thresholds_of({"labels": {"min_top1": 0.5}})
    with pytest.raises(AccuracyError, match="no labels"):
        check_model(sound, {"x": X}, precision="bf16", thresholds=limits)


@pytest.mark.parametrize("value", [".nan", "nan", float("inf"), float("nan")])
@pytest.mark.parametrize(
    "where", [("outputs", "min_sqnr"), ("layers", "min_sqnr"), ("metric", "f", "min")], ids=lambda path: path[0]
)
def test_limits_are_finite(where: tuple[str, ...], value: object) -> None:
    data: object = value
    for key in reversed(where):
        data = {key: data}
    with pytest.raises(msgspec.ValidationError):
        thresholds_of(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", ["sys.exit(0)", "sys.exit(7)", "raise GeneratorExit", "raise BaseException('no')"])
def test_a_metric_that_exits_is_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / "inside.py").write_text(f"import sys\ndef f(a, b):\n    {body}\n")
    with pytest.raises(AccuracyError, match="fails"):
        evaluate_metric(load_metric(f"{tmp_path}/inside.py:f"), {}, {})
    (tmp_path / "outside.py").write_text(f"import sys\n{body}\ndef f(a, b):\n    return 1\n")
    with pytest.raises(AccuracyError):
        load_metric(f"{tmp_path}/outside.py:f")


@pytest.mark.parametrize("result", ["3.5", {}, None, [1, 2], np.nan, {"a": "1"}])
def test_results_of_metrics_are_numbers(result: object) -> None:
    with pytest.raises(AccuracyError, match="no number"):
        evaluate_metric(lambda wanted, found: result, {}, {})


@pytest.mark.parametrize("result", [1, 2.5, True, np.float32(3), np.ones((1,))])
def test_numbers_of_all_kinds_are_taken(result: object) -> None:
    assert list(evaluate_metric(lambda wanted, found: result, {}, {}).values()) == [float(np.reshape(result, ()))]
    assert "torq_user_metric" not in sys.modules
