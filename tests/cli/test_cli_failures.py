"""Failures that are nobody's input: a full disk, a defect of ours."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path

import pytest

from tests.cli.refusals import assert_refused, files_in, written
from torq_byoc.cli.repro import write_bundle
from torq_byoc.errors import InternalError


def full(descriptor: int) -> None:
    """``os.fsync`` where no space is left."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


WRITERS = {
    "compile": ("compile", "{model}", "-o", "{old}"),
    "compile --dump-ir": ("compile", "{model}", "-o", "{old}", "--dump-ir", "{folder}"),
    "run": ("run", "{container}", "--input", "{inputs}", "--output", "{old}"),
    "run --trace": ("run", "{container}", "--input", "{inputs}", "--output", "{folder}/o.npz", "--trace", "{old}"),
    "demo": ("demo", "--trace", "{old}"),
}


@pytest.mark.parametrize("case", WRITERS)
def test_a_full_disk_leaves_nothing_and_keeps_the_old_file(case, workspace, tmp_path, capsys, monkeypatch):
    old = written(tmp_path / "old", b"old content")
    monkeypatch.setattr("torq_byoc.npu_model.container.os.fsync", full)
    names = {"model": workspace.model, "container": workspace.int8, "inputs": workspace.inputs}
    arguments = (argument.format(old=old, folder=tmp_path, **names) for argument in WRITERS[case])
    message = assert_refused(capsys, "EnvironmentProblem", *arguments)
    assert "No space left" in message["why"]
    assert files_in(tmp_path) == {old} and old.read_bytes() == b"old content"


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


def test_a_defect_that_names_itself_writes_a_bundle_as_well(workspace, tmp_path, capsys, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise InternalError("the tiles overlap", where="node 'conv'", why="3 bytes", details={"node": "conv"})

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("torq_byoc.compiler.compile_model", broken)
    message = assert_refused(capsys, "InternalError", "compile", workspace.model, "-o", tmp_path / "o.torq")
    assert (message["what"], message["where"], message["why"]) == ("the tiles overlap", "node 'conv'", "3 bytes")
    assert message["details"] == {"node": "conv"}
    assert zipfile.is_zipfile(message["try"].split()[-1])


def test_a_defect_of_ours_is_told_even_where_no_bundle_can_be_written(workspace, tmp_path, capsys, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("something impossible")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    monkeypatch.setattr("torq_byoc.compiler.compile_model", broken)
    message = assert_refused(capsys, "InternalError", "compile", workspace.model, "-o", tmp_path / "o.torq")
    assert "something impossible" in message["what"] and "no bundle could be written" in message["try"]
    assert "something impossible" in message["details"]["trace"]


def test_a_bundle_holds_no_more_than_ordinary_files(workspace, tmp_path, capsys, monkeypatch):
    """A pipe or a device on the command line is not waited for."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    bundle = write_bundle(["compile", str(workspace.model), str(tmp_path / "pipe"), "/dev/zero"], "trace")
    with zipfile.ZipFile(bundle) as archive:
        assert [name for name in archive.namelist() if name.startswith("inputs/")] == ["inputs/tiny.onnx"]


@pytest.mark.filterwarnings("error")
def test_a_bundle_holds_a_file_once_and_files_of_one_name_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data.npz").write_text(folder)
    first, second = (str(tmp_path / folder / "data.npz") for folder in ("a", "b"))
    bundle = write_bundle(["check", "--data", first, "--calib", first, "--metric", second], "trace")
    with zipfile.ZipFile(bundle) as archive:
        names = [name for name in archive.namelist() if name.startswith("inputs/")]
        assert [archive.read(name).decode() for name in names] == ["a", "b"] and len(set(names)) == 2
