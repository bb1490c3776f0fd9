"""Reading files that a user named: ordinary ones only, never past their size, never waiting."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from torq_byoc.errors import ScheduleError, choose_from, require_known
from torq_byoc.files import Expected, open_ordinary, parse_json, read_ordinary, read_text

NOTES = Expected(ScheduleError, "the notes", "write them again", 100)


def _socket(folder: Path) -> Path:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "p")
    return folder / "p"


def _large(folder: Path) -> Path:
    (folder / "large").write_bytes(bytes(101))
    return folder / "large"


def _loop(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


BAD = {
    "missing": ("No such file", lambda folder: folder / "none"),
    "below a file": ("Not a directory", lambda folder: _large(folder) / "x"),
    "folder": ("it is a folder", lambda folder: folder),
    "device": ("it is a device", lambda _: Path("/dev/zero")),
    "pipe": ("it is a pipe", _pipe),
    "socket": ("it is a socket", _socket),
    "link to itself": ("symbolic links", _loop),
    "name too long": ("File name too long", lambda folder: folder / ("x" * 300)),
    "no name at all": ("null byte", lambda _: Path("a\0b")),
    "too large": ("it has 101 bytes, at most 100 are read", _large),
}


@pytest.mark.parametrize("case", BAD)
def test_refusals(case, tmp_path):
    why, make = BAD[case]
    path = make(tmp_path)
    with pytest.raises(ScheduleError, match="the notes cannot be read") as caught:
        read_ordinary(path, NOTES)
    assert why in caught.value.why
    assert caught.value.where == str(path) and caught.value.remedy == "write them again"


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("torq_byoc.files.os.open", denied)
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(ScheduleError, match="why: Permission denied"):
        read_ordinary(tmp_path / "a", NOTES)


def test_content_is_read_and_text_decoded(tmp_path):
    (tmp_path / "a").write_text("größer", encoding="utf-8")
    assert read_ordinary(tmp_path / "a", NOTES) == "größer".encode()
    assert read_text(tmp_path / "a", NOTES) == "größer"


def test_text_of_another_encoding_is_refused(tmp_path):
    (tmp_path / "a").write_bytes("größer".encode("latin-1"))
    with pytest.raises(ScheduleError, match="byte 2 is not UTF-8"):
        read_text(tmp_path / "a", NOTES)


def test_what_is_added_while_reading_is_not_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"before")
    with open_ordinary(path, NOTES) as (stream, size):
        path.write_bytes(b"before and much after")
        assert stream.read(size) == b"before"


@pytest.mark.parametrize("name", ["/proc/kmsg", "/proc/self/mem", "/proc/cpuinfo"])
def test_files_of_the_kernel_show_no_size_and_are_not_read(name):
    if not Path(name).exists():
        pytest.skip("no such file here")
    try:
        assert read_ordinary(Path(name), NOTES) == b""
    except ScheduleError as error:
        assert "cannot be read" in error.what


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("refrence", "did you mean 'reference'? use one of reference, shared"),
        ("SHARED", "did you mean 'shared'? use one of reference, shared"),
        ("zzz", "use one of reference, shared"),
        ("", "use one of reference, shared"),
    ],
)
def test_the_nearest_name_is_suggested_where_one_is_near(name, remedy):
    assert choose_from(name, ("reference", "shared")) == remedy


def test_a_name_that_does_not_exist_is_refused_with_the_nearest():
    known = ("reference", "shared")
    require_known(ScheduleError, "profile", known, known)
    require_known(ScheduleError, "profile", (), iter(known))
    with pytest.raises(ScheduleError) as refusal:
        require_known(
            ScheduleError, "profile", ["shared", "refrence"], iter(known), where="here", otherwise="; or none"
        )
    error = refusal.value
    assert (error.what, error.where) == ("there is no profile 'refrence'", "here")
    assert error.remedy == "did you mean 'reference'? use one of reference, shared; or none"


@pytest.mark.parametrize("text", [r'"\ud800"', r'[1, ["a\udfff"]]', r'{"\udc00": 1}', r'{"a": {"b": "\ud83d"}}'])
def test_a_string_of_json_is_text(text):
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        parse_json(text)


def test_whole_pairs_and_all_other_characters_are_text():
    assert parse_json(r'{"\ud83d\ude00": ["é", "\u0000", "\uffff"]}') == {"😀": ["é", "\0", "\uffff"]}
