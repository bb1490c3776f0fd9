"""Calibration data and inputs that do not fit: one error of their own each, and nothing left behind."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.refusals import assert_refused, files_in, npz, written
from tests.cli.tools import INPUT, SHAPE, conv_model, samples, torq


def _broken_at(value: float) -> np.ndarray:
    values = samples()
    values[2, 1, 3, 4] = value
    return values


def _zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(INPUT, b"bytes")
    return path


def _truncated(path: Path) -> Path:
    return written(path, path.read_bytes()[:-60])


def _folder(folder: Path, *arrays: dict[str, np.ndarray]) -> Path:
    """A folder of npz files, one a sample."""
    (folder / "samples").mkdir()
    for index, sample in enumerate(arrays):
        np.savez(folder / "samples" / f"{index}.npz", **sample)
    return folder / "samples"


CALIBRATION = {
    "missing": ("No such file", lambda folder: folder / "none.npz"),
    "no npz": ("not a zip file", lambda folder: written(folder / "data.npz", b"plain text")),
    "empty file": ("not a zip file", lambda folder: written(folder / "data.npz", b"")),
    "truncated": ("not a zip file", lambda folder: _truncated(npz(folder, **{INPUT: samples()}))),
    "objects": ("allow_pickle", lambda folder: npz(folder, **{INPUT: np.array([{"a": 1}, None], dtype=object)})),
    "a member that is no array": ("is no array", lambda folder: _zipped(folder / "data.npz")),
    "empty folder": ("holds no npz file", lambda folder: _folder(folder)),
    "unlike samples in a folder": (
        "differ in names or shapes",
        lambda folder: _folder(folder, {INPUT: samples(1)}, {INPUT: samples(2)}),
    ),
    "wrong name": (f"did you mean '{INPUT}'", lambda folder: npz(folder, X=samples())),
    "additional name": ("unknown: more", lambda folder: npz(folder, **{INPUT: samples(), "more": samples()})),
    "wrong shape": ("has the wrong shape", lambda folder: npz(folder, **{INPUT: samples()[:, :2]})),
    "wrong rank": ("wrong number of dimensions", lambda folder: npz(folder, **{INPUT: samples()[0]})),
    "no samples": ("holds no samples", lambda folder: npz(folder, **{INPUT: samples()[:0]})),
    "complex": ("it is complex64, the input is float32", lambda folder: npz(folder, **{INPUT: samples() * 1j})),
    "text": ("has the wrong type", lambda folder: npz(folder, **{INPUT: np.full((1, *SHAPE[1:]), "a")})),
    "int8 for a float input": (
        "dequantize it if it is quantized",
        lambda folder: npz(folder, **{INPUT: samples().astype(np.int8)}),
    ),
    "pixels for a float input": (
        "scale it as the model was trained",
        lambda folder: npz(folder, **{INPUT: np.abs(samples()).astype(np.uint8)}),
    ),
    "beyond float32": (
        "values that float32 cannot",
        lambda folder: npz(folder, **{INPUT: samples().astype(np.float64) * 1e300}),
    ),
    "NaN": ("1 NaN and 0 infinite", lambda folder: npz(folder, **{INPUT: _broken_at(np.nan)})),
    "infinite": ("0 NaN and 1 infinite", lambda folder: npz(folder, **{INPUT: _broken_at(-np.inf)})),
}
"""What is wrong -> (words that only its own message has, function that writes the data into a folder)."""


@pytest.mark.parametrize("case", CALIBRATION)
def test_bad_calibration(case, workspace, tmp_path, capsys):
    words, make = CALIBRATION[case]
    data = make(tmp_path)
    before = files_in(tmp_path)
    arguments = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", data)
    message = assert_refused(capsys, "CalibrationError", *arguments)
    assert words in " ".join((message["what"], message["why"], message["try"]))
    assert files_in(tmp_path) == before


def test_samples_that_do_not_fill_a_batch(tmp_path, capsys):
    onnx.save(conv_model(batch=3), tmp_path / "m.onnx")
    data = npz(tmp_path, **{INPUT: samples(4)})
    arguments = ("compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--calib", data)
    message = assert_refused(capsys, "CalibrationError", *arguments)
    assert "4 samples, one inference takes 3" in message["why"] and "multiple of 3" in message["try"]


def test_inputs_with_unlike_numbers_of_samples(tmp_path, capsys):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("a", "b", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"], "sum")], "sum", values[:2], values[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    data = npz(tmp_path, a=np.ones((3, 4), np.float32), b=np.ones((2, 4), np.float32))
    arguments = ("compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--calib", data)
    message = assert_refused(capsys, "CalibrationError", *arguments)
    assert message["why"] == "a has 3, b has 2"


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_calibration_that_never_changes_is_a_warning(value, workspace, tmp_path, capsys):
    """The container is made, and text, JSON and a later look into the container all say what it is worth."""
    data = npz(tmp_path, **{INPUT: np.full((4, *SHAPE[1:]), value, np.float32)})
    arguments = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", data)
    result = torq(capsys, *arguments, "--json")
    assert result.code == 0
    (warning,) = result.json["warnings"]
    assert f"calibration array {INPUT} is {value:g} everywhere" in warning
    assert f"warning: {warning}" in torq(capsys, *arguments).out
    assert torq(capsys, "inspect", tmp_path / "o.torq", "--json").json["warnings"] == [warning]
    assert torq(capsys, "ops", workspace.model, "--calib", data, "--json").json["warnings"] == [warning]


def test_real_samples_give_no_warning(workspace, capsys):
    assert torq(capsys, "inspect", workspace.int8, "--json").json["warnings"] == []


def test_calibration_for_bf16_is_noted_as_unused(workspace, tmp_path, capsys):
    arguments = ("compile", workspace.model, "-o", tmp_path / "o.torq", "--precision", "bf16")
    notes = torq(capsys, *arguments, "--calib", workspace.calibration, "--json").json["notes"]
    assert any("calibration data is not used" in note for note in notes)


RUN_INPUTS = {
    "missing": ("CalibrationError", lambda folder: folder / "none.npz"),
    "no npz": ("CalibrationError", lambda folder: written(folder / "i.npz", b"text")),
    "wrong name": ("CalibrationError", lambda folder: npz(folder, image=samples(1))),
    "additional name": ("CalibrationError", lambda folder: npz(folder, **{INPUT: samples(1), "more": samples(1)})),
    "wrong shape": ("ShapeError", lambda folder: npz(folder, **{INPUT: samples(2)})),
    "wrong type": ("CalibrationError", lambda folder: npz(folder, **{INPUT: samples(1).astype(np.complex64)})),
    "int8 for a float input": ("CalibrationError", lambda folder: npz(folder, **{INPUT: samples(1).astype(np.int8)})),
}


@pytest.mark.parametrize("case", RUN_INPUTS)
def test_bad_inputs_of_run(case, workspace, tmp_path, capsys):
    error, data = RUN_INPUTS[case][0], RUN_INPUTS[case][1](tmp_path)
    before = files_in(tmp_path)
    assert_refused(
        capsys, error, "run", workspace.int8, "--input", data, "--output", tmp_path / "o.npz",
        "--trace", tmp_path / "t.json",
    )  # fmt: skip
    assert files_in(tmp_path) == before
