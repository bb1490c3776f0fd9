"""Outputs that would replace each other, an input or what is no file: refused before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import Workspace, torq


@pytest.fixture
def own(workspace: Workspace, tmp_path: Path) -> Workspace:
    """Copies of the workspace's files that a mistake may destroy, and files for the options."""
    paths = (workspace.model, workspace.calibration, workspace.inputs, workspace.int8, workspace.bf16)
    space = Workspace(tmp_path, *(written(tmp_path / path.name, path.read_bytes()) for path in paths))
    written(tmp_path / "record.json", b'{"format": 1, "nodes": {}, "resident": {}}')
    written(tmp_path / "hw.yaml", b"name: mine\n")
    (tmp_path / "samples").mkdir()
    written(tmp_path / "samples/0.npz", workspace.calibration.read_bytes())
    (tmp_path / "soft.torq").symlink_to(space.model)
    (tmp_path / "hard.torq").hardlink_to(space.model)
    os.mkfifo(tmp_path / "pipe")
    return space


COMPILE = ("compile", "tiny.onnx")
RUN = ("run", "int8.torq", "--input", "in.npz")
CLASHES = {
    "compile: output is the model": (*COMPILE, "-o", "tiny.onnx"),
    "compile: output is the model by another way": (*COMPILE, "-o", "samples/../tiny.onnx"),
    "compile: output is a link to the model": (*COMPILE, "-o", "soft.torq"),
    "compile: output is the model by another name": (*COMPILE, "-o", "hard.torq"),
    "compile: output is the calibration data": (*COMPILE, "-o", "calib.npz", "--calib", "calib.npz"),
    "compile: output is one of the samples": (*COMPILE, "-o", "samples/0.npz", "--calib", "samples"),
    "compile: output is the schedule": (*COMPILE, "-o", "record.json", "--schedule", "record.json"),
    "compile: output is the hardware description": (*COMPILE, "-o", "hw.yaml", "--hw", "hw.yaml"),
    "compile: output is the IR folder": (*COMPILE, "-o", "x", "--dump-ir", "x"),
    "compile: output is the IR folder by another way": (*COMPILE, "-o", "x", "--dump-ir", "./samples/../x"),
    "compile: output is named like a file of the IR folder": (*COMPILE, "-o", "./00-x.txt", "--dump-ir", "."),
    "compile: the IR folder is the model": (*COMPILE, "-o", "o.torq", "--dump-ir", "tiny.onnx"),
    "compile: the IR folder is the folder of samples": (
        *COMPILE, "-o", "o.torq", "--calib", "samples", "--dump-ir", "samples",
    ),
    "compile: the IR folder is a file": (*COMPILE, "-o", "o.torq", "--dump-ir", "bf16.torq"),
    "compile: output is a folder": (*COMPILE, "-o", "samples"),
    "compile: output is a device": (*COMPILE, "-o", "/dev/null"),
    "compile: output is a pipe": (*COMPILE, "-o", "pipe"),
    "run: output is the container": (*RUN, "--output", "int8.torq"),
    "run: output is the input": (*RUN, "--output", "in.npz"),
    "run: output is the trace": (*RUN, "--output", "same", "--trace", "same"),
    "run: output is a device": (*RUN, "--output", "/dev/null"),
    "run: trace is the container": (*RUN, "--output", "o.npz", "--trace", "int8.torq"),
    "run: trace is the input": (*RUN, "--output", "o.npz", "--trace", "./in.npz"),
    "run: trace is a folder": (*RUN, "--output", "o.npz", "--trace", "samples"),
    "demo: trace is a folder": ("demo", "--trace", "samples"),
    "demo: trace is a device": ("demo", "--trace", "/dev/null"),
}  # fmt: skip


def _contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in files_in(folder)}


@pytest.mark.parametrize("case", CLASHES)
def test_clashes(case, own, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = _contents(tmp_path)
    message = assert_refused(capsys, "CommandLineError", *CLASHES[case])
    assert message["what"] == "the output cannot go there" and message["why"]
    assert _contents(tmp_path) == before
    assert Path("/dev/null").is_char_device()


IMPOSSIBLE = {
    "compile: no such folder": (*COMPILE, "-o", "none/o.torq"),
    "compile: below a file": (*COMPILE, "-o", "tiny.onnx/o.torq"),
    "compile: name too long": (*COMPILE, "-o", "x" * 300),
    "compile: the IR folder below a file": (*COMPILE, "-o", "o.torq", "--dump-ir", "tiny.onnx/ir"),
    "run: no such folder": (*RUN, "--output", "none/o.npz"),
    "run: no folder for the trace": (*RUN, "--output", "o.npz", "--trace", "none/t.json"),
    "demo: no folder for the trace": ("demo", "--trace", "none/t.json"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_places_where_nothing_can_be_written(case, own, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = _contents(tmp_path)
    assert_refused(capsys, "EnvironmentProblem", *IMPOSSIBLE[case])
    assert _contents(tmp_path) == before


def test_a_folder_that_may_not_be_written(own, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torq_byoc.cli.targets.os.access", lambda *_: False)
    message = assert_refused(capsys, "EnvironmentProblem", *COMPILE, "-o", "samples/o.torq")
    assert message["where"] == str(tmp_path / "samples")


def test_what_stands_beside_is_no_clash(own, tmp_path, capsys, monkeypatch):
    """Outputs in the folder of the samples, in the IR folder, and in place of an older output."""
    monkeypatch.chdir(tmp_path)
    arguments = (*COMPILE, "-o", "samples/o.torq", "--calib", "samples", "--dump-ir", ".")
    for _ in range(2):
        assert torq(capsys, *arguments).code == 0
    assert torq(capsys, *RUN, "--output", "o.npz", "--trace", "t.json").code == 0


def test_a_bad_model_leaves_no_ir_folder(tmp_path, capsys):
    model = written(tmp_path / "m.onnx", b"nothing")
    assert_refused(capsys, "ModelFileError", "compile", model, "-o", tmp_path / "o.torq", "--dump-ir", tmp_path / "ir")
    assert files_in(tmp_path) == {model}


def test_saving_from_python_never_replaces_a_device(workspace):
    import torq_byoc

    model = torq_byoc.load(workspace.bf16)
    with pytest.raises(torq_byoc.EnvironmentProblem, match="the path is a device"):
        model.save("/dev/null")
    assert Path("/dev/null").is_char_device()
