"""Floor 0: reading files that a user named, without trusting the names.

A name may lead to a folder, a device or a pipe, which never end or never begin; to a file of the kernel that
shows no size; or to something that grows while it is read.  Only ordinary files are read, never past the
size they have when they are opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from torq_byoc.errors import TorqError

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
        raise expected.refusal(path, _reason(error)) from error
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
            raise expected.refusal(path, _reason(error)) from error


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


def _reason(error: Exception) -> str:
    """The operating system's words without error number and path."""
    return getattr(error, "strerror", None) or str(error)
