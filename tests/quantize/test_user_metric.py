"""A quality measured by a function of the user's."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.errors import AccuracyError
from torq_byoc.quantize.user_metric import evaluate_metric, load_metric

A, B = {"y": np.array([1.0, 2.0])}, {"y": np.array([1.5, 2.0])}


def test_a_number_and_numbers_by_name(tmp_path):
    path = tmp_path / "metrics.py"
    path.write_text(
        "def error(a, b):\n    return abs(a['y'] - b['y']).max()\ndef both(a, b):\n    return {'e': 1, 'f': 0.5}\n"
    )
    assert evaluate_metric(load_metric(f"{path}:error"), A, B) == {"metric": 0.5}
    assert evaluate_metric(load_metric(f"{path}:both"), A, B) == {"e": 1.0, "f": 0.5}


def test_a_failure_names_its_cause():
    def broken(a, b):
        return a["z"]

    with pytest.raises(AccuracyError) as error:
        evaluate_metric(broken, A, B)
    assert (error.value.where, error.value.why) == ("broken", "KeyError: 'z'")


@pytest.mark.parametrize("text", ["metrics.py", ":f", "metrics.py:", "", "none.py:f"])
def test_names_that_lead_nowhere(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AccuracyError):
        load_metric(text)
