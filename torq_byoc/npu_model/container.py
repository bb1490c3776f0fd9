"""The ``.torq`` file: named byte sections with checksums, and writing that never leaves half a file.

Little-endian, the same bytes for the same sections:

=============  ========================================================================================
magic          8 bytes, with line endings that a text-mode copy would change
version u32    a reader takes files of its own version
sections u32
size u64       of the whole file
SHA-256        of the whole file without this field
table          a section: name length u16, offset u64, size u64, SHA-256 of the content, name (UTF-8)
contents       in the table's order (sorted by name), each at a multiple of 8, zeros between
=============  ========================================================================================
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torq_byoc.errors import ProgramFormatError
from torq_byoc.files import Expected, read_ordinary, write_together

MAGIC = b"\x89TORQ\r\n\x1a"
FORMAT_VERSION = 2
MAX_FILE_BYTES = 5 << 30
"""A little above the 4 GiB that a program's XRAM image can take."""
CONTAINER_FILE = Expected(
    ProgramFormatError,
    "the compiled program",
    "give the path of a .torq file and check its permissions",
    MAX_FILE_BYTES,
)

_PREFIX = struct.Struct("<8sIIQ")
_DIGEST_BYTES = 32
_HEADER_BYTES = _PREFIX.size + _DIGEST_BYTES
_ENTRY = struct.Struct("<HQQ32s")
_ALIGN = 8
_MAX_SECTIONS = 1024


@dataclass(frozen=True)
class SectionEntry:
    """A line of the section table."""

    name: str
    offset: int
    size: int
    sha256: bytes


def pack_container(sections: Mapping[str, bytes]) -> bytes:
    """The file's bytes.

    Raises:
        ValueError: more sections than a file can hold, or a name of 0 or more than 255 bytes.
    """
    names = sorted(sections)
    encoded = [name.encode() for name in names]
    if len(names) > _MAX_SECTIONS or any(not 0 < len(name) <= 255 for name in encoded):
        raise ValueError(f"at most {_MAX_SECTIONS} sections with names of 1..255 bytes, got {names}")
    offset = _aligned(_HEADER_BYTES + sum(_ENTRY.size + len(name) for name in encoded))
    table: list[bytes] = []
    contents: list[bytes] = []  # pieces, joined once: images are large
    for name, raw in zip(names, encoded, strict=True):
        data = sections[name]
        table.append(_ENTRY.pack(len(raw), offset, len(data), hashlib.sha256(data).digest()) + raw)
        contents += [data, bytes(_aligned(len(data)) - len(data))]
        offset += _aligned(len(data))
    head = b"".join(table)
    body = [head, bytes(_aligned(_HEADER_BYTES + len(head)) - _HEADER_BYTES - len(head)), *contents]
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, len(names), _HEADER_BYTES + sum(map(len, body)))
    digest = hashlib.sha256(prefix)
    for piece in body:
        digest.update(piece)
    return b"".join([prefix, digest.digest(), *body])


def unpack_container(data: bytes, where: str = "") -> dict[str, bytes]:
    """The sections of a file's bytes, every checksum verified.

    Args:
        data: the whole file.
        where: the file's name, for error messages.

    Raises:
        ProgramFormatError: not a container, damaged, truncated, or written by another version.
    """
    sections = {}
    for entry in section_table(data, where):
        content = data[entry.offset : entry.offset + entry.size]
        if hashlib.sha256(content).digest() != entry.sha256:
            raise _damaged(where, f"the checksum of section {entry.name!r} does not match")
        sections[entry.name] = content
    return sections


def section_table(data: bytes, where: str = "") -> tuple[SectionEntry, ...]:
    """The section table, checked against the file's size and checksum.

    Raises:
        ProgramFormatError: as ``unpack_container``.
    """
    count = _check_header(data, where)
    entries: list[SectionEntry] = []
    cursor, end = _HEADER_BYTES, _HEADER_BYTES
    for _ in range(count):
        if cursor + _ENTRY.size > len(data):
            raise _damaged(where, f"the section table runs past the end at byte {cursor}")
        length, offset, size, digest = _ENTRY.unpack_from(data, cursor)
        cursor += _ENTRY.size
        raw = data[cursor : cursor + length]
        cursor += length
        try:
            name = raw.decode()
        except UnicodeDecodeError as error:
            raise _damaged(where, f"section name at byte {cursor - length}: {error}") from error
        if offset < max(end, cursor) or offset + size > len(data):
            raise _damaged(where, f"section {name!r} claims bytes {offset}..{offset + size} of {len(data)}")
        if entries and name <= entries[-1].name:
            raise _damaged(where, f"section {name!r} is out of order")
        entries.append(SectionEntry(name, offset, size, digest))
        end = offset + size
    if entries and entries[0].offset < cursor:
        raise _damaged(where, "a section overlaps the table")
    return tuple(entries)


def read_container(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The sections of a file, every checksum verified.

    Raises:
        ProgramFormatError: the file cannot be read, or as ``unpack_container``.
    """
    return unpack_container(read_ordinary(Path(path), CONTAINER_FILE), str(path))


def write_file_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all: to a temporary file beside it, to disk, then renamed.

    Raises:
        EnvironmentProblem: the disk is full, the folder is missing or not writable, or the path is a folder, a
            device or a pipe, which a rename would replace; nothing is left behind.
    """
    write_together({Path(path): data})


def _check_header(data: bytes, where: str) -> int:
    """The number of sections, after all checks that concern the whole file."""
    if data[: len(MAGIC)] != MAGIC:
        raise ProgramFormatError(
            "this is not a compiled program",
            where=where,
            why=f"it starts with {data[: len(MAGIC)]!r}, not {MAGIC!r}",
            remedy="give a .torq file that `torq compile` wrote, copied in binary mode",
        )
    if len(data) < _HEADER_BYTES:
        raise _damaged(where, f"{len(data)} bytes, the header alone takes {_HEADER_BYTES}")
    version: int
    count: int
    _, version, count, size = _PREFIX.unpack_from(data)
    if version != FORMAT_VERSION:
        age, update = ("a newer", ", or update torq_byoc") if version > FORMAT_VERSION else ("an older", "")
        raise ProgramFormatError(
            f"the compiled program was written by {age} version",
            where=where,
            why=f"format version {version}, this version reads {FORMAT_VERSION}",
            remedy=f"compile the model again with this version{update}",
            details={"version": version, "supported": FORMAT_VERSION},
        )
    if size != len(data):
        raise _damaged(where, f"{len(data)} bytes, the header says {size}")
    if count > _MAX_SECTIONS:
        raise _damaged(where, f"{count} sections, at most {_MAX_SECTIONS}")
    digest = hashlib.sha256(data[: _PREFIX.size])
    digest.update(memoryview(data)[_HEADER_BYTES:])
    if digest.digest() != data[_PREFIX.size : _HEADER_BYTES]:
        raise _damaged(where, "the checksum of the file does not match")
    return count


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _damaged(where: str, why: str) -> ProgramFormatError:
    return ProgramFormatError(
        "the compiled program is damaged or truncated",
        where=where,
        why=why,
        remedy="copy the file again, or compile the model again",
    )
