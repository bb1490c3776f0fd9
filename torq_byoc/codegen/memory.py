"""Addresses for every buffer: LRAM by lifetime, XRAM in sections (inputs, outputs, scratch, constants)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.allocation import Request, pack
from torq_byoc.codegen.dependencies import AddressMap
from torq_byoc.codegen.hl import Buffer, BufferKind, Load, RunProgram, SliceRun, Space
from torq_byoc.codegen.prefetch import OrderedProgram
from torq_byoc.npu_model.config import NpuConfig


@dataclass(frozen=True)
class MemoryMap:
    """Byte addresses of all buffers and the extents of the XRAM sections; the constant buffers of each kind, in the
    order of their addresses; sizes and lifetimes of what is in LRAM."""

    addresses: AddressMap
    lram_peak: int
    lram_requests: tuple[Request, ...]
    arena_address: int
    arena_bytes: int
    constants: Mapping[BufferKind, Sequence[Buffer]]
    constants_end: int


def memory_map(ordered: OrderedProgram, config: NpuConfig) -> MemoryMap:
    """Lay out XRAM, and turn LRAM offsets into addresses."""
    program = ordered.program
    lram = {index: config.lram_reserve + offset for index, offset in ordered.offsets.items()}
    address = dict(lram)
    size = {i: program.buffers[i].nbytes for i in lram}
    in_xram: dict[BufferKind, list[Buffer]] = {kind: [] for kind in BufferKind}
    for buffer in program.buffers:
        if buffer.space is Space.XRAM:
            in_xram[buffer.kind].append(buffer)
    outside = [
        (position, (op.source if type(op) is Load else op.target).buffer)
        for position, op in enumerate(program.ops)
        if type(op) is not SliceRun
    ]
    used = {buffer for _, buffer in outside}
    cursor = config.xram_base
    for kind in (BufferKind.INPUT, BufferKind.OUTPUT):
        for buffer in in_xram[kind]:
            address[buffer.index], size[buffer.index] = cursor, buffer.nbytes
            cursor = _align(cursor + buffer.nbytes, config.xram_page)
    arena_address = cursor
    scratch = _place_scratch(program, outside, config)
    for index, offset in scratch.items():
        address[index], size[index] = arena_address + offset, program.buffers[index].nbytes
    arena_bytes = max((scratch[i] + program.buffers[i].nbytes for i in scratch), default=0)
    cursor = _align(arena_address + arena_bytes, config.xram_page)
    constants = {
        kind: [buffer for buffer in in_xram[kind] if buffer.index in used]
        for kind in (BufferKind.WEIGHTS, BufferKind.PROGRAM)
    }
    for members in constants.values():
        for buffer in members:
            address[buffer.index], size[buffer.index] = cursor, buffer.nbytes
            cursor = _align(cursor + buffer.nbytes, config.xram_align)
    peak = max((lram[i] + program.buffers[i].nbytes for i in lram), default=config.lram_reserve)
    lives = ((program.buffers[index].nbytes, life) for index, life in ordered.lifetimes.items())
    requests = tuple(Request(nbytes, life.start, life.end) for nbytes, life in lives)
    return MemoryMap(AddressMap(address, size), peak, requests, arena_address, arena_bytes, constants, cursor)


def _place_scratch(program: RunProgram, outside: Iterable[tuple[int, int]], config: NpuConfig) -> dict[int, int]:
    """Offsets of spilled tensors, reused once their last reader is issued, given what transfers touch in XRAM."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, buffer in outside:
        if program.buffers[buffer].kind is BufferKind.ACTIVATION:
            first.setdefault(buffer, position)
            last[buffer] = position
    indices = sorted(first)
    requests = [Request(program.buffers[i].nbytes, first[i], last[i]) for i in indices]
    return dict(zip(indices, pack(requests, config.xram_align).offsets, strict=True))


def _align(value: int, to: int) -> int:
    return -(-value // to) * to
