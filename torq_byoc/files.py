"""Floor 0: reading and writing files that a user named, without trusting the names.

A name may lead to a folder, a device or a pipe, which never end or never begin; to a file of the kernel that
shows no size; or to something that grows while it is read.  Only ordinary files are read, never past the
size they have when they are opened.  Files are written whole or not at all, and so are several that belong together.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from torq_byoc.errors import EnvironmentProblem, TorqError

_SPECIAL = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


@dataclass(frozen=True)
class Expected:
    """What a file should be, for the message when it is not.

    Attributes:
        error: class of the error.
        what: how the message calls the file: "the calibration data".
        remedy: what to do when it cannot be read.
        limit: bytes; a larger file is refused.
    """

    error: type[TorqError]
    what: str
    remedy: str
    limit: int

    def refusal(self, path: Path | str, why: str) -> TorqError:
        """The error for a file that cannot be read."""
        return self.error(f"{self.what} cannot be read", where=str(path), why=why, remedy=self.remedy)


def special_kind(path: Path) -> str:
    """ "a folder", "a device", "a pipe", "a socket"; empty for an ordinary file.

    Raises:
        OSError: there is no such file, or it cannot be reached.
        ValueError: the name is none that a file can have.
    """
    mode = path.stat().st_mode
    return next((name for test, name in _SPECIAL if test(mode)), "")


@contextmanager
def open_ordinary(path: Path, expected: Expected) -> Iterator[tuple[BinaryIO, int]]:
    """An ordinary file open for reading, with its size in bytes.

    Raises:
        TorqError: of class ``expected.error``: there is no such file, it may not be read, is no ordinary
            file, or is larger than the limit.
    """
    try:
        kind = special_kind(path)
        stream = None if kind else os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")
    except (OSError, ValueError) as error:
        raise expected.refusal(path, reason(error)) from error
    if stream is None:
        raise expected.refusal(path, f"it is {kind}, not an ordinary file")
    with stream:
        size = os.fstat(stream.fileno()).st_size
        if size > expected.limit:
            raise expected.refusal(path, f"it has {size} bytes, at most {expected.limit} are read")
        yield stream, size


def read_ordinary(path: Path, expected: Expected) -> bytes:
    """The content of an ordinary file; empty for files of the kernel, which show no size.

    Raises:
        TorqError: as ``open_ordinary``.
    """
    with open_ordinary(path, expected) as (stream, size):
        try:
            return stream.read(size)
        except OSError as error:
            raise expected.refusal(path, reason(error)) from error


def read_text(path: Path, expected: Expected) -> str:
    """The content of an ordinary UTF-8 file.

    Raises:
        TorqError: as ``open_ordinary``, and when the content is not UTF-8.
    """
    data = read_ordinary(path, expected)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise expected.refusal(path, f"byte {error.start} is not UTF-8 text") from error


def parse_json(text: str) -> Any:
    """The value of a JSON text; of two equal keys of an object one would be lost, so they are refused.

    Raises:
        ValueError: the text is not JSON, nested too deeply, an object has a key twice, or a string is no text;
            says where.
    """
    try:
        return whole_text(json.loads(text, object_pairs_hook=_object))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def whole_text(value: Any) -> Any:
    """Nested plain data as it is, all of whose strings can be written to a file.

    JSON and YAML can spell half of a character outside the basic plane, which no encoding of text has.

    Raises:
        ValueError: a string has such a half.
    """
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"the string {value!r} is no text: it has half of a surrogate pair")
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            whole_text(key)
            whole_text(entry)
    elif isinstance(value, list):
        for entry in value:
            whole_text(entry)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is there twice")
        result[key] = value
    return result


def shown_name(path: Path) -> str:
    """The name of a file for reports and messages; bytes that are no text are replaced in it."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def write_together(files: Mapping[Path, bytes], removed: Collection[Path] = ()) -> None:
    """Write all of several files or none: to temporary files beside them, to disk, then renamed.

    Args:
        files: content by path.
        removed: files that go once everything is on the disk, such as those of an earlier run.

    Raises:
        EnvironmentProblem: the disk is full, a folder is missing or not writable, or a path is a folder, a device
            or a pipe, which a rename would replace; nothing is left behind.
    """
    for path in files:
        _refuse_special(path)
    temporary = {path: path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp") for path in files}
    try:
        for path, data in files.items():
            with _told_of(path, f" ({len(data)} bytes)"):
                _write_to_disk(temporary[path], data)
        for path in removed:
            with _told_of(path):
                path.unlink(missing_ok=True)
        for path, ready in temporary.items():
            with _told_of(path):
                ready.replace(path)
    finally:
        for ready in temporary.values():
            with suppress(OSError):
                ready.unlink(missing_ok=True)
    for folder in {path.parent for path in files}:
        _sync_folder(folder)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """A folder, with all above it, that goes again when what was to fill it fails.

    Raises:
        EnvironmentProblem: it cannot be made.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(
            "the folder cannot be created", where=str(folder), why=reason(error), remedy="name another folder"
        ) from error
    try:
        yield
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def _refuse_special(path: Path) -> None:
    with suppress(OSError):
        kind = special_kind(path)
        if kind:
            raise EnvironmentProblem(
                "the file cannot be written", where=str(path), why=f"the path is {kind}", remedy="name a file"
            )


@contextmanager
def _told_of(path: Path, about: str = "") -> Iterator[None]:
    """Errors of the operating system as ones that name the file."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            "the file cannot be written",
            where=str(path),
            why=f"{reason(error)}{about}",
            remedy="free disk space or choose a folder that exists and is writable",
        ) from error


def _write_to_disk(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Make renames durable where the system allows it; the files are complete either way."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def reason(error: Exception) -> str:
    """The operating system's words without error number and path."""
    return getattr(error, "strerror", None) or str(error)
