"""The .torq file: determinism, refusal of every damage, and writing whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import subprocess
import sys

import numpy as np
import pytest

from tests.npu_model import infra
from torq_byoc.errors import EnvironmentProblem, ProgramFormatError
from torq_byoc.npu_model.container import (
    FORMAT_VERSION,
    MAGIC,
    pack_container,
    read_container,
    section_table,
    unpack_container,
    write_file_atomically,
)
from torq_byoc.npu_model.program import IMAGE_SECTION, META_SECTION, Program

SECTIONS = {"program": b'{"a":1}', "image": bytes(range(256)) * 3, "empty": b"", "größe": b"\x00"}
DATA = pack_container(SECTIONS)


def resealed(data: bytes) -> bytes:
    """The file with its own checksum recomputed, as an attacker would."""
    return data[:24] + hashlib.sha256(data[:24] + data[56:]).digest() + data[56:]


def test_round_trip():
    assert unpack_container(DATA) == SECTIONS
    assert unpack_container(pack_container({})) == {}


def test_bytes_do_not_depend_on_order_or_hash_seed():
    assert pack_container(dict(reversed(SECTIONS.items()))) == DATA
    script = (
        "import hashlib; from torq_byoc.npu_model.container import pack_container;"
        "print(hashlib.sha256(pack_container({n: n.encode() * 9 for n in set('abcdefgh')})).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_section_table_locates_the_content():
    for entry in section_table(DATA):
        assert DATA[entry.offset : entry.offset + entry.size] == SECTIONS[entry.name]
        assert entry.offset % 8 == 0


@pytest.mark.parametrize("seed", range(200))
def test_any_changed_byte_is_noticed(seed):
    rng = np.random.default_rng(seed)
    data = bytearray(DATA)
    data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
    with pytest.raises(ProgramFormatError):
        unpack_container(bytes(data))


def test_every_truncation_is_noticed():
    for size in [*range(80), *range(80, len(DATA), 7)]:
        with pytest.raises(ProgramFormatError):
            unpack_container(DATA[:size])
    with pytest.raises(ProgramFormatError, match="the header says"):
        unpack_container(DATA + b"\x00")


@pytest.mark.parametrize("seed", range(200))
def test_damage_under_a_valid_checksum_never_fails_in_another_way(seed):
    rng = np.random.default_rng(seed)
    data = bytearray(DATA)
    table_end = 56 + sum(50 + len(name.encode()) for name in SECTIONS)
    for _ in range(rng.integers(1, 4)):
        where = int(rng.integers(12, table_end))
        data[where : where + 4] = bytes(rng.integers(0, 256, 4).tolist())
    try:
        sections = unpack_container(resealed(bytes(data)))
    except ProgramFormatError:
        return
    assert all(content in SECTIONS.values() for content in sections.values())


def test_huge_sizes_in_the_table_are_refused_before_anything_is_allocated():
    data = bytearray(DATA)
    struct.pack_into("<Q", data, 56 + 2, 1 << 62)
    with pytest.raises(ProgramFormatError, match="claims bytes"):
        unpack_container(resealed(bytes(data)))


def test_other_files_and_versions_have_messages_of_their_own():
    with pytest.raises(ProgramFormatError, match="not a compiled program"):
        unpack_container(b"\x08\x07onnx model")
    with pytest.raises(ProgramFormatError, match="not a compiled program"):
        unpack_container(DATA.replace(b"\r\n", b"\n"))
    for other, age in ((FORMAT_VERSION + 1, "newer"), (FORMAT_VERSION - 1, "older")):
        file = bytearray(DATA)
        struct.pack_into("<I", file, len(MAGIC), other)
        with pytest.raises(ProgramFormatError, match=f"{age} version") as caught:
            unpack_container(bytes(file), "m.torq")
        assert caught.value.details == {"version": other, "supported": FORMAT_VERSION}
        assert caught.value.where == "m.torq"


def test_files_round_trip_and_replace(tmp_path):
    path = tmp_path / "m.torq"
    path.write_bytes(b"old")
    write_file_atomically(path, pack_container(SECTIONS))
    assert read_container(path) == SECTIONS
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.torq"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_unreadable_paths_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.torq")
    for path in (tmp_path / "missing.torq", tmp_path, tmp_path / "pipe.torq", tmp_path / ("x" * 300), "a\0b"):
        with pytest.raises(ProgramFormatError, match="cannot be read"):
            read_container(path)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "m.torq"
    path.write_bytes(b"old")

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        write_file_atomically(path, b"new")
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.torq"]
    assert path.read_bytes() == b"old"


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(_handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file_atomically(tmp_path / "m.torq", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_environment_problem(tmp_path):
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        write_file_atomically(tmp_path / "no" / "m.torq", b"x")


def test_program_sections_round_trip_through_a_file(tmp_path):
    for name, program in infra.programs().items():
        write_file_atomically(tmp_path / name, pack_container(program.to_sections()))
        assert Program.from_sections(read_container(tmp_path / name)) == program


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.replace(b'"slices":2', b'"slices":0'),
        lambda meta: meta.replace(b'"slices":2', b'"slices":"2"'),
        lambda meta: meta.replace(b'"slices":2', b'"slices":2,"slice":3'),
        lambda meta: meta.replace(b'"kind":"program"', b'"kind":"code"'),
        lambda meta: meta.replace(b'"dtype":"int8"', b'"dtype":"int4"'),
        lambda meta: meta.replace(b'"dtype":"int8"', b'"dtype":"int16"'),
        lambda meta: meta.replace(b'"shape":[4,256]', b'"shape":[-4,-256]'),
        lambda meta: meta.replace(b'"arena_bytes":0', b'"arena_bytes":-1'),
        lambda meta: meta[:-1],
        lambda meta: b"\xff" + meta,
        lambda meta: b"[" * 100_000,
        lambda meta: b"[]",
    ],
)
def test_damaged_program_metadata_is_refused(change):
    sections = infra.double_buffered_relu().to_sections()
    changed = change(sections[META_SECTION])
    assert changed != sections[META_SECTION]
    with pytest.raises(ProgramFormatError):
        Program.from_sections({**sections, META_SECTION: changed})


def test_image_and_sections_must_be_whole():
    sections = infra.double_buffered_relu().to_sections()
    with pytest.raises(ProgramFormatError, match="image of"):
        Program.from_sections({**sections, IMAGE_SECTION: sections[IMAGE_SECTION] + b"\x00"})
    for name in (META_SECTION, IMAGE_SECTION):
        with pytest.raises(ProgramFormatError, match="missing"):
            Program.from_sections({key: value for key, value in sections.items() if key != name})
