"""The binary form of slice programs: little-endian, fixed-width fields, one task after the other.

The size of a task depends on its structure (loops, dims, optional parts) and never on addresses or
strides, so code generation can size program buffers before it places anything.

=========  =========================================================================================
header     size u16, mark u8, flags u8, vector u16, weights u8, loops u8, descriptors u8
ACT        mode u8, shift u8, rounding u8, sum bits u8, zero point i16, clip bounds 2 x (i32 or f32)
ALU        op0 6 bits | no P clear, no P output as u8, op1 u8                  (flag ALU)
loops      extent 28 bits | tag 4 bits as u32, role u8
plane      see ``_PLANE``                                                       (flag PLANE)
window     see ``_WINDOW``                                                      (flag WINDOW)
fill       i32                                                                  (flag FILL)
descr.     agent and type u8, dims u8 (0x80 | k: the dims of descriptor k again), base u32 (memory only)
dim        loop 4 bits | kind 2 bits | two flags as u8, step u16 (flag STEP), count u32 (flag COUNT),
           stride i24 (memory only)
table      512 x (base i16, slope i16) = 2 KiB                                  (flag TABLE)
=========  =========================================================================================

All descriptors are walks of one nest (hardware doc 4.1).  A dim whose step is 1, or whose count follows from its loop,
does not repeat it; a register descriptor with another one's dims refers to them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral

from msgspec.structs import replace

from torq_byoc.npu_model.encoding_ndl import MEMORY_AGENTS, decode_ndls, encode_ndls, ndl_bases, ndls_bytes, put_base
from torq_byoc.npu_model.encoding_nss import decode_nss, encode_nss, nss_bytes, start_bytes, task_bytes
from torq_byoc.npu_model.fields import Layout, Reader, bits, does_not_fit, malformed, pack
from torq_byoc.npu_model.isa import (
    ActConfig,
    ActMode,
    AluConfig,
    Loop,
    Op0,
    Op1,
    OutputWindow,
    Plane,
    Role,
    Rounding,
    SliceTask,
    Tag,
)

__all__ = [
    "MEMORY_AGENTS",
    "base_fields",
    "decode_nss",
    "decode_slice_program",
    "encode_nss",
    "encode_slice_program",
    "encode_slice_task",
    "encoded_size",
    "nss_bytes",
    "start_bytes",
    "program_bytes",
    "put_base",
    "task_bytes",
]

_KIND = "slice program"
_MARK = 0xA7
_HEADER = struct.Struct("<HBBHBBB")
_ACT = struct.Struct("<BBBBh4s4s")
_ALU = struct.Struct("<BB")
_LOOP = struct.Struct("<IB")
_PLANE = Layout("TTTtBBttHHtt4s")
_WINDOW = Layout("TTTttBBtt")
_INTEGER, _FLOAT = struct.Struct("<i"), struct.Struct("<f")
_FILL = struct.Struct("<i")
_TABLE = struct.Struct("<1024h")

_HAS_ALU, _HAS_PLANE, _HAS_WINDOW, _HAS_TABLE, _HAS_FILL = 1, 2, 4, 8, 16
_INTEGER_MIN, _INTEGER_MAX, _INTEGER_PAD = 32, 64, 128
_NO_P_CLEAR, _NO_P_OUTPUT = 64, 128


def encode_slice_program(tasks: Sequence[SliceTask]) -> bytes:
    """The bytes a slice executes: its tasks one after the other.

    Raises:
        InternalError: a value does not fit its field.
    """
    return b"".join(encode_slice_task(task) for task in tasks)


def encode_slice_task(task: SliceTask) -> bytes:
    """The bytes of one task; ``decode_slice_program`` gives the equal task back.

    Raises:
        InternalError: a value does not fit its field.
    """
    parts = [_encode_act(task.act)]
    if task.alu:
        parts.append(_encode_alu(task.alu))
    for loop in task.loops:
        word = bits("loop extent", loop.extent, 28) | bits("loop tag", loop.tag, 4) << 28
        parts.append(pack(_LOOP, "loop", word, loop.role))
    if task.plane:
        parts.append(_encode_plane(task.plane))
    if task.window:
        parts.append(_encode_window(task.window))
    if task.fill_value is not None:
        parts.append(pack(_FILL, "fill value", task.fill_value))
    parts += encode_ndls(task)
    if task.table is not None:
        parts.append(_encode_table(task.table))
    size = _HEADER.size + sum(map(len, parts))
    header = (size, _MARK, _flags(task), task.vector, task.weights, len(task.loops), len(task.ndls))
    return pack(_HEADER, "task header", *header) + b"".join(parts)


def program_bytes(tasks: Sequence[SliceTask]) -> int:
    """Size of the encoded slice program in bytes, without encoding it."""
    return sum(encoded_size(task) for task in tasks)


def encoded_size(task: SliceTask) -> int:
    """Size of one encoded task in bytes, without encoding it."""
    size = _HEADER.size + _ACT.size + _LOOP.size * len(task.loops)
    size += _ALU.size if task.alu else 0
    size += _PLANE.size if task.plane else 0
    size += _WINDOW.size if task.window else 0
    size += _FILL.size if task.fill_value is not None else 0
    size += _TABLE.size if task.table is not None else 0
    return size + ndls_bytes(task)


def base_fields(data: bytes) -> list[tuple[int, int]]:
    """Byte offset and value of every base address in an encoded slice program."""
    fields, offset = [], 0
    while offset < len(data):
        size, _, flags, _, _, loops, ndls = _HEADER.unpack_from(data, offset)
        parts = ((_ALU, _HAS_ALU), (_PLANE, _HAS_PLANE), (_WINDOW, _HAS_WINDOW), (_FILL, _HAS_FILL))
        first = offset + _HEADER.size + _ACT.size + _LOOP.size * loops
        first += sum(layout.size for layout, flag in parts if flags & flag)
        fields += ndl_bases(data, first, ndls)
        offset += size
    return fields


@lru_cache(maxsize=8192)
def decode_slice_program(data: bytes) -> tuple[SliceTask, ...]:
    """The tasks of an encoded slice program.

    Raises:
        ProgramFormatError: the bytes are no valid encoding.
    """
    tasks = []
    offset = 0
    while offset < len(data):
        if len(data) - offset < _HEADER.size:
            raise malformed(_KIND, offset, f"{len(data) - offset} bytes left, a header takes {_HEADER.size}")
        size = int.from_bytes(data[offset : offset + 2], "little")
        if not _HEADER.size <= size <= len(data) - offset:
            raise malformed(_KIND, offset, f"task of {size} bytes with {len(data) - offset} left")
        try:
            tasks.append(_decode_placed(data[offset : offset + size]))
        except (ValueError, IndexError) as error:
            raise malformed(_KIND, offset, str(error)) from error
        offset += size
    return tuple(tasks)


def _flags(task: SliceTask) -> int:
    present = (
        (task.alu, _HAS_ALU),
        (task.plane, _HAS_PLANE),
        (task.window, _HAS_WINDOW),
        (task.table, _HAS_TABLE),
        (task.fill_value, _HAS_FILL),
    )
    flags = sum(flag for part, flag in present if part is not None)
    flags |= _INTEGER_MIN if isinstance(task.act.clip_min, Integral) else 0
    flags |= _INTEGER_MAX if isinstance(task.act.clip_max, Integral) else 0
    if task.plane and isinstance(task.plane.pad_value, Integral):
        flags |= _INTEGER_PAD
    return flags


def _word(group: str, value: float) -> bytes:
    """A bound as 32 bits: an integer, or a float provided that loses nothing."""
    if isinstance(value, Integral):
        return pack(_INTEGER, group, value)
    word = pack(_FLOAT, group, value)
    if _FLOAT.unpack(word)[0] != value and value == value:  # NaN is left to the verifier
        raise does_not_fit(group, value, "f32")
    return word


def _encode_act(act: ActConfig) -> bytes:
    low, high = _word("clip minimum", act.clip_min), _word("clip maximum", act.clip_max)
    return pack(_ACT, "ACT", act.mode, act.shift, act.rounding, act.sum_bits, act.zero_point, low, high)


def _encode_alu(alu: AluConfig) -> bytes:
    kept = (0 if alu.clear else _NO_P_CLEAR) | (0 if alu.output else _NO_P_OUTPUT)
    return pack(_ALU, "ALU", alu.op0 | kept, alu.op1)


def _encode_plane(plane: Plane) -> bytes:
    return pack(
        _PLANE,
        "plane",
        plane.height,
        plane.width,
        plane.frame_width,
        plane.row_stride,
        plane.stride_y,
        plane.stride_x,
        plane.phase_stride_y,
        plane.phase_stride_x,
        plane.dilation_y,
        plane.dilation_x,
        plane.pad_top,
        plane.pad_left,
        _word("pad value", plane.pad_value),
    )


def _encode_window(window: OutputWindow) -> bytes:
    return pack(
        _WINDOW,
        "output window",
        window.frame_width,
        window.first_column,
        window.columns,
        window.row_stride,
        window.column_stride,
        window.stride_y,
        window.stride_x,
        window.phase_stride_y,
        window.phase_stride_x,
    )


@lru_cache(maxsize=64)
def _encode_table(table: tuple[tuple[int, int], ...]) -> bytes:
    return pack(_TABLE, "look-up table", *(number for entry in table for number in entry))


def _decode_placed(data: bytes) -> SliceTask:
    """A task of which others may differ in nothing but the bases of their operands: that is decoded once for all.

    Where descriptors are malformed no base may be found, or bytes behind the first mistake be taken for one: either way
    decoding comes to that mistake.
    """
    try:
        fields = base_fields(data)
    except (struct.error, IndexError):
        return _decode_task(data)
    image = bytearray(data)
    for offset, _ in fields:
        put_base(image, offset, 0)
    task = _decode_task(bytes(image))
    bases = iter(fields)
    ndls = [replace(ndl, base=next(bases)[1]) if ndl.agent in MEMORY_AGENTS else ndl for ndl in task.ndls]
    return replace(task, ndls=tuple(ndls))


@lru_cache(maxsize=1024)
def _decode_task(data: bytes) -> SliceTask:
    reader = Reader(data, _KIND)
    _, mark, flags, vector, weights, loop_count, ndl_count = reader.take(_HEADER)
    if mark != _MARK:
        raise reader.malformed(f"mark {mark:#x} where {_MARK:#x} belongs")
    act = _decode_act(reader, flags)
    alu = None
    if flags & _HAS_ALU:
        alu = _decode_alu(reader)
    loops = tuple(_decode_loop(reader) for _ in range(loop_count))
    plane = _decode_plane(reader, flags) if flags & _HAS_PLANE else None
    window = OutputWindow(*reader.take(_WINDOW)) if flags & _HAS_WINDOW else None
    fill = reader.take(_FILL)[0] if flags & _HAS_FILL else None
    ndls = decode_ndls(reader, ndl_count, loops, vector, weights)
    table = None
    if flags & _HAS_TABLE:
        table = _decode_table(reader.raw(_TABLE.size))
    if reader.remaining:
        raise reader.malformed(f"{reader.remaining} bytes after the task's last field")
    return SliceTask(loops, vector, weights, ndls, alu, act, plane, window, table, fill)


@lru_cache(maxsize=64)
def _decode_table(raw: bytes) -> tuple[tuple[int, int], ...]:
    numbers = _TABLE.unpack(raw)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _decode_alu(reader: Reader) -> AluConfig:
    op0, op1 = reader.take(_ALU)
    kept = _NO_P_CLEAR | _NO_P_OUTPUT
    return AluConfig(Op0(op0 & ~kept), Op1(op1), clear=not op0 & _NO_P_CLEAR, output=not op0 & _NO_P_OUTPUT)


def _decode_act(reader: Reader, flags: int) -> ActConfig:
    mode, shift, rounding, sum_bits, zero_point, low, high = reader.take(_ACT)
    return ActConfig(
        ActMode(mode),
        shift,
        Rounding(rounding),
        zero_point,
        _bound(low, flags & _INTEGER_MIN),
        _bound(high, flags & _INTEGER_MAX),
        sum_bits,
    )


def _bound(word: bytes, integer: int) -> float:
    return (_INTEGER if integer else _FLOAT).unpack(word)[0]


def _decode_loop(reader: Reader) -> Loop:
    word, role = reader.take(_LOOP)
    return Loop(Tag(word >> 28), word & 0xFFFFFFF, Role(role))


def _decode_plane(reader: Reader, flags: int) -> Plane:
    *numbers, pad_value = reader.take(_PLANE)
    return Plane(*[*numbers, _bound(pad_value, flags & _INTEGER_PAD)])
