"""--calibration-method, and what compile says of a calibration."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.tools import INPUT, SHAPE, torq
from torq_byoc.cli.options import CALIBRATION_METHODS
from torq_byoc.quantize.choose_ranges import AUTO
from torq_byoc.quantize.observers import CALIBRATORS


def compiled(workspace, tmp_path, capsys, data, *options):
    """The JSON of a compilation with calibration data."""
    path = tmp_path / "samples.npz"
    np.savez(path, **{INPUT: data.astype(np.float32)})
    arguments = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", path, *options, "--json")
    result = torq(capsys, *arguments)
    assert result.code == 0
    return result.json


def test_the_command_line_has_all_methods():
    assert set(CALIBRATION_METHODS) == {AUTO, *CALIBRATORS}


def test_a_calibration_is_summed_up(workspace, tmp_path, capsys):
    data = np.random.default_rng(0).normal(0, 1, (8, *SHAPE[1:]))
    found = compiled(workspace, tmp_path, capsys, data)["calibration"]
    assert (found["method"], found["samples"], found["held_out"]) == ("auto", 8, 2)
    assert sum(found["chosen"].values()) == found["tensors"] >= found["settled"] > 0
    assert 0 <= found["outside"] < 1
    assert found["gain"] >= 0


@pytest.mark.parametrize("method", sorted(CALIBRATORS))
def test_a_method_is_taken_for_all_tensors(method, workspace, tmp_path, capsys):
    data = np.random.default_rng(0).normal(0, 1, (3, *SHAPE[1:]))
    summary = compiled(workspace, tmp_path, capsys, data, "--calibration-method", method)
    found = summary["calibration"]
    assert found["chosen"] == {method: found["tensors"]}
    assert found["outside"] is None
    assert any("calibrated on 3 samples" in note for note in summary["notes"])


def test_held_out_samples_unlike_the_others_are_a_warning(workspace, tmp_path, capsys):
    data = np.random.default_rng(0).normal(0, 1, (8, *SHAPE[1:]))
    data[6:] *= 4
    summary = compiled(workspace, tmp_path, capsys, data)
    (warning,) = summary["warnings"]
    assert "in the last 2 samples of the calibration data lie outside the range of those before" in warning
    assert any("widened the ranges of" in note for note in summary["notes"])


def test_an_unknown_method_is_refused_with_the_nearest(workspace, tmp_path, capsys):
    result = torq(capsys, "compile", workspace.model, "--calibration-method", "entrpy", "--json")
    assert result.code == 2
    assert result.json["error"] == "CommandLineError"
    assert "entropy" in result.json["try"]
