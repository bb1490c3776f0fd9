"""Containers that are damaged, of another version, incomplete, or no containers at all."""

from __future__ import annotations

import pytest

from tests.cli.refusals import assert_refused, files_in, written
from tests.cli.tools import Workspace, torq
from torq_byoc.npu_model.container import pack_container, unpack_container


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
    damaged = written(tmp_path / "damaged.torq", CONTAINERS[case](workspace.int8.read_bytes()))
    output = tmp_path / "o.npz"
    assert_refused(capsys, "ProgramFormatError", "run", damaged, "--input", workspace.inputs, "--output", output)
    assert_refused(capsys, "ProgramFormatError", "inspect", damaged)
    assert_refused(capsys, "ProgramFormatError", "bench", damaged)
    assert files_in(tmp_path) == {damaged}


def test_other_files_in_place_of_a_container(workspace, tmp_path, capsys):
    for wrong in (workspace.model, tmp_path / "none.torq", tmp_path):
        assert_refused(capsys, "ProgramFormatError", "inspect", wrong)


@pytest.mark.parametrize("missing", ["model", "partition/0/facts", "partition/0/program", "partition/0/image", "host"])
def test_missing_sections(missing, workspace, tmp_path, capsys):
    sections = unpack_container(workspace.int8.read_bytes())
    del sections[missing]
    (tmp_path / "m.torq").write_bytes(pack_container(sections))
    result = torq(capsys, "inspect", tmp_path / "m.torq", "--json")
    assert result.code == 2 and result.json["error"] == "ProgramFormatError"
