"""The binary form of sequencer blocks: little-endian, fixed-width fields.

========  ==========================================================================================
block     mark u8, zero u8, tasks u16
task      starts u8, waits u8
start     DMA: code u8 (0 in, 1 out), dims u8, lram u32, xram u32, run u32, then (count u32, stride i32) a dim
          slice: code u8 (2), slice u8, address u32, size u32
wait      engine 4 bits | slice 4 bits as u8
========  ==========================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from torq_byoc.npu_model.fields import Reader, bits, does_not_fit, pack
from torq_byoc.npu_model.isa import (
    DMA_IN,
    DMA_OUT,
    DmaDescriptor,
    Engine,
    NssTask,
    Start,
    StartDma,
    StartSlice,
    WaitFor,
)

_KIND = "sequencer block"
_MARK = 0xB5
_BLOCK = struct.Struct("<BBH")
_TASK = struct.Struct("<BB")
_DMA_START, _SLICE_START = struct.Struct("<BBIII"), struct.Struct("<BBII")
_DIM = struct.Struct("<Ii")

_ENGINES = (Engine.DMA_IN, Engine.DMA_OUT, Engine.SLICE, Engine.CSS)
_CODE = {engine: code for code, engine in enumerate(_ENGINES)}
_SLICE_CODE, _LAST_DMA_CODE = _CODE[Engine.SLICE], _CODE[DMA_OUT]
_WAITS = tuple(WaitFor(_ENGINES[code & 15], code >> 4) if code & 15 < len(_ENGINES) else None for code in range(256))
"""What every wait code says; None where it says nothing."""


def encode_nss(tasks: Sequence[NssTask]) -> bytes:
    """The bytes of one sequencer block.

    Raises:
        InternalError: a value does not fit its field.
    """
    parts = [pack(_BLOCK, "sequencer block", _MARK, 0, len(tasks))]
    for task in tasks:
        parts.append(pack(_TASK, "sequencer task", len(task.starts), len(task.waits)))
        parts += [encode_start(start) for start in task.starts]
        parts.append(_encode_waits(task.waits))
    return b"".join(parts)


def nss_bytes(tasks: Sequence[NssTask]) -> int:
    """Size of the encoded block in bytes, without encoding it."""
    return _BLOCK.size + sum(
        [task_bytes(len(task.waits)) + sum([start_bytes(start) for start in task.starts]) for task in tasks]
    )


def task_bytes(waits: int) -> int:
    """Size of an encoded task with so many waits in bytes, without its starts."""
    return _TASK.size + waits


def start_bytes(start: Start) -> int:
    """Size of an encoded start in bytes."""
    if type(start) is StartDma:
        return _DMA_START.size + _DIM.size * len(start.descriptor.dims)
    return _SLICE_START.size


def decode_nss(data: bytes) -> tuple[NssTask, ...]:
    """The tasks of an encoded block.

    Raises:
        ProgramFormatError: the bytes are no valid encoding.
    """
    reader = Reader(data, _KIND)
    mark, zero, count = reader.take(_BLOCK)
    if mark != _MARK or zero:
        raise reader.malformed(f"mark {mark:#x}, {zero:#x} where {_MARK:#x}, 0x0 belongs")
    tasks = []
    for _ in range(count):
        starts, waits = reader.take(_TASK)
        started = tuple([_decode_start(reader) for _ in range(starts)])
        tasks.append(NssTask(started, _decode_waits(reader, waits)))
    if reader.remaining:
        raise reader.malformed(f"{reader.remaining} bytes after the last task")
    return tuple(tasks)


def encode_start(start: Start) -> bytes:
    """The bytes of one start inside its block.

    Raises:
        InternalError: a value does not fit its field.
    """
    if type(start) is StartSlice:
        return pack(_SLICE_START, "slice start", _SLICE_CODE, start.slice_index, start.address, start.size)
    if start.engine is not DMA_IN and start.engine is not DMA_OUT:
        raise does_not_fit("transfer start", start.engine, "of a DMA engine")
    descriptor = start.descriptor
    code, dims, run = _CODE[start.engine], descriptor.dims, descriptor.run
    head = pack(_DMA_START, "transfer start", code, len(dims), descriptor.lram, descriptor.xram, run)
    return head + b"".join([pack(_DIM, "transfer dim", *dim) for dim in dims])


@lru_cache(maxsize=256)
def _encode_waits(waits: tuple[WaitFor, ...]) -> bytes:
    """The bytes of the waits of a task: engines are few."""
    return bytes([_CODE[wait.engine] | bits("slice to wait for", wait.slice_index, 4) << 4 for wait in waits])


def _decode_start(reader: Reader) -> Start:
    code = reader.peek()
    if code == _SLICE_CODE:
        _, number, address, size = reader.take(_SLICE_START)
        return StartSlice(number, address, size)
    if code > _LAST_DMA_CODE:
        raise reader.malformed(f"start code {code}")
    _, number, lram, xram, run = reader.take(_DMA_START)
    dims = tuple([reader.take(_DIM) for _ in range(number)]) if number else ()
    return StartDma(_ENGINES[code], DmaDescriptor(lram, xram, run, dims))


def _decode_waits(reader: Reader, count: int) -> tuple[WaitFor, ...]:
    codes = reader.raw(count)
    waits = [wait for wait in map(_WAITS.__getitem__, codes) if wait is not None]
    if len(waits) < count:
        raise reader.malformed(f"wait code {next(code & 15 for code in codes if _WAITS[code] is None)}")
    return tuple(waits)
