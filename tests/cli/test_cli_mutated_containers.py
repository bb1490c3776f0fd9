"""Containers whose checksums are right and whose content is not: refused by name, or run as usual."""

from __future__ import annotations

import random

import pytest

from tests.cli.tools import torq
from torq_byoc.npu_model.container import pack_container, unpack_container

MUTANTS = 40


def _mutate(data: bytes, rng: random.Random) -> bytes:
    """One of: flip bytes, cut, repeat a run, change a digit of the text."""
    changed = bytearray(data)
    position = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del changed[position : position + rng.randrange(1, 200)]
    elif kind == 2:
        changed[position : position + 8] = rng.choice((b"\x00", b"\xff")) * 8
    else:
        digits = [index for index, byte in enumerate(changed) if 48 <= byte < 58]
        for index in rng.sample(digits, min(3, len(digits))):
            changed[index] = rng.randrange(48, 58)
    return bytes(changed)


@pytest.mark.parametrize("section", ["model", "partition/0/facts", "partition/0/program", "partition/0/image", "host"])
def test_mutants(section, workspace, tmp_path, capsys):
    sections = unpack_container(workspace.int8.read_bytes())
    rng = random.Random(section)
    target, output = tmp_path / "m.torq", tmp_path / "o.npz"
    codes = set()
    for number in range(MUTANTS):
        target.write_bytes(pack_container({**sections, section: _mutate(sections[section], rng)}))
        for command in (
            ("inspect", target, "--disassemble", "--memory"),
            ("run", target, "--input", workspace.inputs, "--output", output, "--trace", tmp_path / "t.json"),
        ):
            result = torq(capsys, *command, "--json")
            codes.add(result.code)
            error = result.json.get("error")
            assert result.code == (0 if error is None else 2), (number, error)
            assert error != "InternalError", (number, result.out)
    assert 2 in codes


@pytest.mark.parametrize("missing", ["model", "partition/0/facts", "partition/0/program", "partition/0/image", "host"])
def test_missing_sections(missing, workspace, tmp_path, capsys):
    sections = unpack_container(workspace.int8.read_bytes())
    del sections[missing]
    (tmp_path / "m.torq").write_bytes(pack_container(sections))
    result = torq(capsys, "inspect", tmp_path / "m.torq", "--json")
    assert result.code == 2 and result.json["error"] == "ProgramFormatError"
