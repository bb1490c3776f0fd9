"""Packing and unpacking of binary fields with errors that name the field group.

``pack`` refuses a value that does not fit its field; a ``Reader`` never reads past its end.  Shared by the
encodings of slice tasks and of sequencer tasks.  ``Layout`` is a ``struct.Struct`` that knows 24-bit numbers too, the
width of addresses and strides.
"""

from __future__ import annotations

import struct
from typing import Any

from torq_byoc.errors import InternalError, ProgramFormatError


class Layout:
    """Little-endian fields: the codes of ``struct``, and ``t`` and ``T`` for 24 bits, signed and unsigned."""

    def __init__(self, codes: str) -> None:
        self.format = codes
        self._struct = struct.Struct("<" + codes.replace("t", "3s").replace("T", "3s"))
        self._short = [(index, code == "t") for index, code in enumerate(codes) if code in "tT"]
        self.size = self._struct.size

    def pack(self, *values: Any) -> bytes:
        """The bytes of the fields; ``OverflowError`` or ``struct.error`` where a value does not fit."""
        fields = list(values)
        for index, signed in self._short:
            fields[index] = int(fields[index]).to_bytes(3, "little", signed=signed)
        return self._struct.pack(*fields)

    def unpack_from(self, buffer: bytes, offset: int = 0) -> tuple[Any, ...]:
        """The values of the fields at an offset."""
        fields = list(self._struct.unpack_from(buffer, offset))
        for index, signed in self._short:
            fields[index] = int.from_bytes(fields[index], "little", signed=signed)
        return tuple(fields)


Fields = struct.Struct | Layout
"""The layout of a group of fields."""


def pack(layout: Fields, group: str, *values: Any) -> bytes:
    """The bytes of one group of fields.

    Raises:
        InternalError: a value does not fit its field; names the group and the values.
    """
    try:
        return layout.pack(*values)
    except (struct.error, OverflowError) as error:
        raise does_not_fit(group, values, f"{layout.format!r}: {error}") from error


def bits(group: str, value: int, width: int) -> int:
    """The value itself when it is an unsigned number of ``width`` bits.

    Raises:
        InternalError: it is not.
    """
    if not 0 <= value < (1 << width):
        raise does_not_fit(group, value, f"0..{(1 << width) - 1}")
    return int(value)


def does_not_fit(group: str, value: object, field: str) -> InternalError:
    """The error for a value that its binary field cannot hold."""
    return InternalError(
        "an instruction does not fit its binary form",
        where=group,
        why=f"{value!r} against field {field}",
        remedy="report it with the model; a smaller tile may avoid it",
    )


class Reader:
    """Takes field groups off the front of a byte string."""

    def __init__(self, data: bytes, kind: str) -> None:
        self._data, self._size = data, len(data)
        self._kind = kind
        self.offset = 0

    @property
    def remaining(self) -> int:
        """Bytes not yet taken."""
        return self._size - self.offset

    def take(self, layout: Fields) -> tuple[Any, ...]:
        """The fields of the next group."""
        start = self.offset
        end = start + layout.size
        if end > self._size:
            raise self.malformed(f"needs {layout.size} more bytes, has {self.remaining}")
        self.offset = end
        return layout.unpack_from(self._data, start)

    def peek(self) -> int:
        """The next byte, which stays.

        Raises:
            ProgramFormatError: there is none.
        """
        if self.offset >= self._size:
            raise self.malformed("it ends where more belongs")
        return self._data[self.offset]

    def raw(self, size: int) -> bytes:
        """The next ``size`` bytes.

        Raises:
            ProgramFormatError: fewer are left.
        """
        if size > self.remaining:
            raise self.malformed(f"needs {size} more bytes, has {self.remaining}")
        start = self.offset
        self.offset += size
        return self._data[start : self.offset]

    def malformed(self, why: str) -> ProgramFormatError:
        """The error for bytes that are no valid encoding."""
        return malformed(self._kind, self.offset, why)


def malformed(kind: str, offset: int, why: str) -> ProgramFormatError:
    """The error for bytes that are no valid encoding of ``kind``."""
    return ProgramFormatError(
        f"malformed {kind}",
        where=f"byte {offset}",
        why=why,
        remedy="compile the model again; the program bytes are damaged",
    )
