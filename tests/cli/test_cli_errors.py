"""Bad input: one named error with a remedy, exit code 2, nothing left behind, no traceback."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.bad_models import BAD_MODELS, UNSUPPORTED_NAMES
from tests.cli.tools import INPUT, SHAPE, Workspace, samples, torq


def assert_refused(capsys, error: str, *arguments: object) -> dict:
    """Both forms of the message: JSON on stdout alone, text on stderr alone."""
    result = torq(capsys, *arguments, "--json")
    assert result.code == 2, result.out
    assert set(result.json) == {"error", "what", "where", "why", "try", "details"}
    assert result.json["error"] == error, result.json
    assert result.json["what"] and result.json["try"], "a failure says what to do about it"
    plain = torq(capsys, *arguments)
    assert plain.code == 2 and plain.out == ""
    assert plain.err.startswith("error: ") and "Traceback" not in plain.err
    return result.json


def files_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models(case, tmp_path, capsys):
    error, content = BAD_MODELS[case]
    folder = tmp_path / "model"
    folder.mkdir()
    model = folder / "m.onnx"
    model.write_bytes(content(folder))
    before = files_in(tmp_path)
    message = assert_refused(capsys, error, "compile", model, "-o", tmp_path / "o.torq")
    for name in UNSUPPORTED_NAMES.get(case, ()):
        assert name in message["where"], "all unsupported operators are listed at once"
    assert files_in(tmp_path) == before
    for command in ("ops", "bench"):
        assert torq(capsys, command, model, "--json").json["error"] == error


def test_missing_model_and_folder(tmp_path, capsys):
    assert_refused(capsys, "ModelFileError", "compile", tmp_path / "none.onnx", "-o", tmp_path / "o.torq")
    assert_refused(capsys, "ModelFileError", "compile", tmp_path, "-o", tmp_path / "o.torq")
    assert files_in(tmp_path) == set()


def _npz(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def _with_nan() -> np.ndarray:
    values = samples()
    values[2, 1, 3, 4] = np.nan
    return values


CALIBRATION = {
    "missing": lambda folder: folder / "none.npz",
    "no npz": lambda folder: _written(folder / "data.npz", b"plain text"),
    "truncated": lambda folder: _truncated(_npz(folder, **{INPUT: samples()})),
    "objects": lambda folder: _npz(folder, **{INPUT: np.array([{"a": 1}, None], dtype=object)}),
    "a member that is no array": lambda folder: _zipped(folder / "data.npz"),
    "empty folder": lambda folder: _made(folder / "empty"),
    "wrong name": lambda folder: _npz(folder, image=samples()),
    "additional name": lambda folder: _npz(folder, **{INPUT: samples(), "more": samples()}),
    "wrong shape": lambda folder: _npz(folder, **{INPUT: samples()[:, :2]}),
    "wrong rank": lambda folder: _npz(folder, **{INPUT: samples()[0]}),
    "no samples": lambda folder: _npz(folder, **{INPUT: samples()[:0]}),
    "wrong type": lambda folder: _npz(folder, **{INPUT: samples().astype(np.complex64)}),
    "text": lambda folder: _npz(folder, **{INPUT: np.full((1, *SHAPE[1:]), "a")}),
    "NaN": lambda folder: _npz(folder, **{INPUT: _with_nan()}),
    "infinite": lambda folder: _npz(folder, **{INPUT: np.full((1, *SHAPE[1:]), np.inf, np.float32)}),
}


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(INPUT, b"bytes")
    return path


def _truncated(path: Path) -> Path:
    return _written(path, path.read_bytes()[:-60])


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("case", CALIBRATION)
def test_bad_calibration(case, workspace, tmp_path, capsys):
    data = CALIBRATION[case](tmp_path)
    before = files_in(tmp_path)
    assert_refused(capsys, "CalibrationError", "compile", workspace.model, "-o", tmp_path / "o.torq", "--calib", data)
    assert files_in(tmp_path) == before


HARDWARE = {
    "unknown preset": "sl9999",
    "no such file": "none/machine.yaml",
    "no mapping": "- 1\n- 2\n",
    "broken YAML": "slices: [1\n",
    "unknown field": "warp_drives: 3\n",
    "wrong type": "slices: many\n",
    "no slices": "slices: 0\n",
    "negative memory": "lram_bytes: -1\n",
    "infinite rate": "dma_factor: .inf\n",
    "memory smaller than its reserve": "lram_bytes: 1024\n",
}


@pytest.mark.parametrize("case", HARDWARE)
def test_impossible_hardware(case, workspace, tmp_path, capsys):
    text = HARDWARE[case]
    machine: object = text
    if "\n" in text:
        machine = tmp_path / "machine.yaml"
        machine.write_text(text)
    before = files_in(tmp_path)
    assert_refused(
        capsys, "HardwareConfigError", "compile", workspace.model, "-o", tmp_path / "o.torq", "--hw", machine
    )
    assert files_in(tmp_path) == before


def test_too_little_lram_is_a_result_with_numbers(tmp_path, capsys):
    rows = 60_000
    nodes = [helper.make_node("MatMul", [INPUT, "w"], ["y"], "long_product")]
    graph = helper.make_graph(
        nodes,
        "long",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(np.ones((rows, 8), np.float32), "w")],
    )
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    message = assert_refused(capsys, "LramOverflowError", "compile", model, "-o", tmp_path / "o.torq", "--hw", "lram64")
    assert "long_product" in message["where"] and any(character.isdigit() for character in message["why"])
    assert files_in(tmp_path) == {model}


OPTIONS = {
    "int8 without data": ("QuantizationError", ["--precision", "int8"]),
    "int16 without data": ("QuantizationError", ["--precision", "int16"]),
    "mixed": ("QuantizationError", ["--precision", "mixed"]),
    "unknown precision": ("CommandLineError", ["--precision", "fp4"]),
    "shape without name": ("ShapeError", ["--shape", "1x3x4"]),
    "shape with letters": ("ShapeError", ["--shape", f"{INPUT}:1xax4"]),
    "shape with zero": ("ShapeError", ["--shape", f"{INPUT}:1x0x4x4"]),
    "shape of no input": ("ShapeError", ["--shape", "nobody:1x3x10x9"]),
    "shape of another rank": ("ShapeError", ["--shape", f"{INPUT}:1x3x10"]),
    "shape against the model": ("ShapeError", ["--shape", f"{INPUT}:1x4x10x9"]),
    "astronomic shape": ("ShapeError", ["--shape", f"{INPUT}:{'9' * 30}x3x10x9"]),
    "unknown pass": ("ScheduleError", ["--disable-pass", "magic"]),
    "missing schedule": ("ScheduleError", ["--schedule", "none.json"]),
    "effort out of range": ("CommandLineError", ["--effort", "9"]),
    "unknown option": ("CommandLineError", ["--frobnicate"]),
    "surplus argument": ("CommandLineError", ["second.onnx"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case, workspace, tmp_path, capsys):
    error, arguments = OPTIONS[case]
    assert_refused(capsys, error, "compile", workspace.model, "-o", tmp_path / "o.torq", *arguments)
    assert files_in(tmp_path) == set()


SCHEDULES = {
    "no JSON": b"tile everything",
    "binary": bytes(range(256)),
    "wrong form": b"[1, 2, 3]",
    "newer format": b'{"format": 999, "nodes": {}, "resident": {}}',
    "unknown node": b'{"format": 1, "nodes": {"nobody": {"tile": [1, 1, 1, 1]}}, "resident": {}}',
    "tile of another rank": b'{"format": 1, "nodes": {"conv+relu": {"tile": [1, 1]}}, "resident": {}}',
    "empty tile": b'{"format": 1, "nodes": {"conv+relu": {"tile": [0, 0, 0, 0]}}, "resident": {}}',
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_bad_schedules(case, workspace, tmp_path, capsys):
    record = _written(tmp_path / "record.json", SCHEDULES[case])
    assert_refused(capsys, "ScheduleError", "compile", workspace.model, "-o", tmp_path / "o.torq", "--schedule", record)
    assert files_in(tmp_path) == {record}


def test_bf16_of_a_quantized_model(tmp_path, capsys):
    from tests.cli.bad_models import _scale
    from tests.cli.tools import conv_model

    model = conv_model()
    _scale(0.5)(model)
    _written(tmp_path / "m.onnx", model.SerializeToString())
    assert_refused(
        capsys, "QuantizationError", "compile", tmp_path / "m.onnx", "-o", tmp_path / "o.torq", "--precision", "bf16"
    )


def _newer(data: bytes) -> bytes:
    return data[:8] + (99).to_bytes(4, "little") + data[12:]


CONTAINERS = {
    "empty": lambda data: b"",
    "text": lambda data: b"no container" * 9,
    "header alone": lambda data: data[:16],
    "truncated": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "a flipped bit": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "newer version": _newer,
    "line endings changed": lambda data: data.replace(b"\r\n", b"\n"),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_damaged_containers(case, workspace: Workspace, tmp_path, capsys):
    damaged = _written(tmp_path / "damaged.torq", CONTAINERS[case](workspace.int8.read_bytes()))
    output = tmp_path / "o.npz"
    assert_refused(capsys, "ProgramFormatError", "run", damaged, "--input", workspace.inputs, "--output", output)
    assert_refused(capsys, "ProgramFormatError", "inspect", damaged)
    assert_refused(capsys, "ProgramFormatError", "bench", damaged)
    assert files_in(tmp_path) == {damaged}


def test_other_files_in_place_of_a_container(workspace, tmp_path, capsys):
    for wrong in (workspace.model, tmp_path / "none.torq", tmp_path):
        assert_refused(capsys, "ProgramFormatError", "inspect", wrong)


RUN_INPUTS = {
    "missing": ("CalibrationError", lambda folder: folder / "none.npz"),
    "no npz": ("CalibrationError", lambda folder: _written(folder / "i.npz", b"text")),
    "wrong name": ("CalibrationError", lambda folder: _npz(folder, image=samples(1))),
    "wrong shape": ("ShapeError", lambda folder: _npz(folder, **{INPUT: samples(2)})),
    "wrong type": ("CalibrationError", lambda folder: _npz(folder, **{INPUT: samples(1).astype(np.complex64)})),
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


def test_outputs_that_cannot_be_written(workspace, tmp_path, capsys):
    missing = tmp_path / "none" / "o.torq"
    assert_refused(capsys, "EnvironmentProblem", "compile", workspace.model, "-o", missing)
    assert_refused(capsys, "CommandLineError", "compile", workspace.model, "-o", workspace.model)
    assert_refused(capsys, "CommandLineError", "compile", workspace.model, "-o", tmp_path)
    run = ("run", workspace.int8, "--input", workspace.inputs)
    assert_refused(capsys, "CommandLineError", *run, "--output", workspace.inputs)
    assert_refused(capsys, "EnvironmentProblem", *run, "--output", tmp_path / "none" / "o.npz")
    blocked = _written(tmp_path / "file", b"")
    output = tmp_path / "o.torq"
    assert_refused(capsys, "EnvironmentProblem", "compile", workspace.model, "-o", output, "--dump-ir", blocked)
    assert files_in(tmp_path) == {blocked}


def test_a_full_disk_leaves_nothing_and_keeps_the_old_file(workspace, tmp_path, capsys, monkeypatch):
    output = _written(tmp_path / "o.torq", b"old content")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("torq_byoc.npu_model.container.os.fsync", full)
    message = assert_refused(capsys, "EnvironmentProblem", "compile", workspace.model, "-o", output)
    assert "No space left" in message["why"]
    assert files_in(tmp_path) == {output} and output.read_bytes() == b"old content"


@pytest.mark.parametrize(
    "arguments",
    [("frobnicate",), ("compile",), ("run", "a.torq"), ("--frobnicate",), ("inspect", "a", "b"), ("demo", "x")],
)
def test_usage_errors(arguments, capsys):
    message = assert_refused(capsys, "CommandLineError", *arguments)
    assert "--help" in message["try"]


def test_a_defect_of_ours_writes_a_bundle(workspace, tmp_path, capsys, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("something impossible")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("torq_byoc.compiler.compile_model", broken)
    message = assert_refused(capsys, "InternalError", "compile", workspace.model, "-o", tmp_path / "o.torq")
    bundle = Path(message["try"].split()[-1])
    with zipfile.ZipFile(bundle) as archive:
        assert {"command.json", "versions.json", "trace.txt", "inputs/tiny.onnx"} <= set(archive.namelist())
        assert "something impossible" in archive.read("trace.txt").decode()


@pytest.mark.parametrize("option", ["--calib", "--schedule", "--hw"])
def test_compile_never_overwrites_what_it_reads(option, workspace, tmp_path, capsys):
    source = tmp_path / ("read.yaml" if option == "--hw" else "read.npz")
    source.write_bytes(b"precious")
    result = torq(capsys, "compile", workspace.model, "-o", source, option, source)
    assert result.code == 2 and "cannot go there" in result.err
    assert source.read_bytes() == b"precious"


def test_run_writes_results_and_trace_to_different_files(workspace, tmp_path, capsys):
    same = tmp_path / "same"
    result = torq(capsys, "run", workspace.model, "--input", workspace.calibration, "--output", same, "--trace", same)
    assert result.code == 2 and "cannot go there" in result.err
    assert not same.exists()
