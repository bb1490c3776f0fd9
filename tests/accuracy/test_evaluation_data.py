"""Samples from arrays, a file or a folder: the same feeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.accuracy.models import chain, data
from torq_byoc.accuracy.evaluation_data import EvaluationData
from torq_byoc.errors import AccuracyError, CalibrationError
from torq_byoc.frontend import prepare

MODEL = prepare(chain())
VALUES = data(5)["x"]


def _folder(path: Path, *files: dict[str, np.ndarray]) -> Path:
    for index, arrays in enumerate(files):
        np.savez(path / f"{index:02d}.npz", **arrays)
    return path


def test_all_forms_give_the_same_samples(tmp_path):
    labels = np.arange(5)
    np.savez(tmp_path / "all.npz", x=VALUES, labels=labels)
    (tmp_path / "folder").mkdir()
    parts = ({"x": VALUES[:1], "labels": labels[:1]}, {"x": VALUES[1:], "labels": labels[1:]})
    sources = ({"x": VALUES, "labels": labels}, tmp_path / "all.npz", _folder(tmp_path / "folder", *parts))
    for source in sources:
        found = EvaluationData(MODEL, source)
        assert found.count == 5
        np.testing.assert_array_equal(found.labels, labels)
        for _ in range(2):  # again and again
            np.testing.assert_array_equal(np.concatenate([feeds["x"] for feeds in found]), VALUES)


def test_files_of_a_folder_are_read_one_at_a_time(tmp_path, monkeypatch):
    from torq_byoc.accuracy import evaluation_data

    read: list[str] = []
    original = evaluation_data.read_npz
    monkeypatch.setattr(evaluation_data, "read_npz", lambda path: read.append(path.name) or original(path))
    found = EvaluationData(MODEL, _folder(tmp_path, *({"x": VALUES[i : i + 1]} for i in range(3))))
    read.clear()
    next(iter(found))
    assert read == ["00.npz"]


def test_a_label_a_file(tmp_path):
    source = _folder(tmp_path, *({"x": VALUES[i : i + 1], "labels": np.array(i)} for i in range(3)))
    np.testing.assert_array_equal(EvaluationData(MODEL, source).labels, [0, 1, 2])


def test_some_labels(tmp_path):
    source = _folder(tmp_path, {"x": VALUES[:1], "labels": np.array([0])}, {"x": VALUES[1:2]})
    with pytest.raises(AccuracyError) as error:
        EvaluationData(MODEL, source)
    assert error.value.why == "1 of 2 files have them"


def test_an_empty_folder(tmp_path):
    with pytest.raises(CalibrationError):
        EvaluationData(MODEL, tmp_path)


def test_classes_beside_an_input_called_labels():
    model = chain()
    model.graph.input[0].name = model.graph.node[0].input[0] = "labels"
    found = EvaluationData(prepare(model), {"labels": VALUES, "class_labels": np.arange(5)})
    assert found.count == 5 and found.labels.tolist() == [0, 1, 2, 3, 4]
    assert EvaluationData(prepare(model), {"labels": VALUES}).labels is None
