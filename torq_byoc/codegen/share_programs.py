"""Slice programs as bytes, and programs that LRAM holds already.

Bands of a fused group do the same with other data, and buffers that never leave LRAM tend to find the same place in
every band.  A program that then comes out equal, byte for byte, to an earlier one is not loaded again, if the place of
the earlier one can stay occupied until then::

    load  p0 -> a     run band 0 (a)     load  p1 -> b     run band 1 (b)        p1 equals p0
    load  p0 -> a     run band 0 (a)                       run band 1 (a)

This can only be seen once every buffer has its address.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from torq_byoc.codegen.call_images import CallImages
from torq_byoc.codegen.hl import READ, Access, BufferKind, Load, RunProgram, SliceRun
from torq_byoc.codegen.lifetimes import Lifetime
from torq_byoc.codegen.needs import CELL_WORDS
from torq_byoc.codegen.occupancy import span
from torq_byoc.codegen.prefetch import OrderedProgram
from torq_byoc.errors import InternalError
from torq_byoc.npu_model.config import NpuConfig


@dataclass(frozen=True, eq=False)
class Images:
    """Slice programs as bytes.

    Attributes:
        data: by the XRAM buffer that holds them.
        sources: the XRAM buffer from which every LRAM program buffer is loaded.
    """

    data: Mapping[int, bytes]
    sources: Mapping[int, int]

    def of(self, program: int) -> bytes:
        """Those of an LRAM program buffer."""
        return self.data[self.sources[program]]


def slice_programs(ordered: OrderedProgram, calls: CallImages) -> Images:
    """Encode all slice programs for the LRAM addresses of their operands.

    Args:
        ordered: torq_hl in its final order.
        calls: of the same program; what it learns serves other orders as well.

    Raises:
        InternalError: a program is longer or shorter than it was before its operands had addresses.
    """
    program = ordered.program
    sources = _program_sources(program)
    table = [0] * len(program.buffers)
    for buffer, offset in ordered.offsets.items():
        table[buffer] = calls.config.lram_reserve + offset
    images: dict[int, bytearray] = {}
    for op in program.ops:
        if type(op) is not SliceRun:
            continue
        source = sources[op.program]
        image = images.get(source)
        if image is None:
            image = images[source] = bytearray(program.buffers[source].nbytes)
        encoded = calls.image(op, table)
        if len(encoded) != op.program_bytes:
            raise InternalError(
                "a slice program changed its size with its addresses",
                where=op.node,
                why=f"{len(encoded)} bytes, planned {op.program_bytes}",
                remedy="report it with the model",
            )
        image[op.program_offset : op.program_offset + op.program_bytes] = encoded
    return Images({source: bytes(image) for source, image in images.items()}, sources)


def _program_sources(program: RunProgram) -> dict[int, int]:
    """The XRAM buffer from which every LRAM program buffer is loaded."""
    loads = [(op.target.buffer, op.source.buffer) for op in program.ops if type(op) is Load]
    return {target: source for target, source in loads if program.buffers[target].kind is BufferKind.PROGRAM}


def share_programs(ordered: OrderedProgram, images: Images, config: NpuConfig) -> OrderedProgram:
    """Leave out the loads of programs that LRAM holds already; the programs that stay live longer for it."""
    program = ordered.program
    places = _Places(ordered, config.lram_word * CELL_WORDS)
    holders: dict[bytes, int] = {}
    renamed: dict[int, int] = {}
    for op in program.ops:
        if type(op) is not SliceRun or op.program in renamed:
            continue
        image = images.of(op.program)
        holder = holders.setdefault(image, op.program)
        if holder == op.program:
            continue
        if places.extend(holder, op.step, op.program):
            renamed[op.program] = holder
        else:
            holders[image] = op.program
    if not renamed:
        return ordered
    ops = [
        _renamed(op, renamed) if type(op) is SliceRun else op
        for op in program.ops
        if not (type(op) is Load and op.target.buffer in renamed)
    ]
    offsets = {buffer: offset for buffer, offset in ordered.offsets.items() if buffer not in renamed}
    lifetimes = {buffer: places.life[buffer] for buffer in sorted(places.life)}
    return dataclasses.replace(ordered, program=program.with_ops(ops), lifetimes=lifetimes, offsets=offsets)


def _renamed(run: SliceRun, renamed: Mapping[int, int]) -> SliceRun:
    program = renamed.get(run.program)
    if program is None:
        return run
    return replace(run, program=program, accesses=(*run.accesses[:-1], Access(program, READ)))


class _Places:
    """Which cells of LRAM every buffer takes, slot by slot."""

    def __init__(self, ordered: OrderedProgram, cell: int) -> None:
        buffers = ordered.program.buffers
        self.life = dict(ordered.lifetimes)
        self.cells = {
            buffer: span(offset // cell, max(1, -(-buffers[buffer].nbytes // cell)))
            for buffer, offset in ordered.offsets.items()
        }
        changes = [0] * (2 + max([life.end for life in self.life.values()], default=-1))
        for buffer, life in self.life.items():
            changes[life.start] ^= self.cells[buffer]
            changes[life.end + 1] ^= self.cells[buffer]
        self.taken = list(itertools.accumulate(changes, operator.xor))

    def extend(self, buffer: int, until: int, instead: int) -> bool:
        """Let a buffer live on until a slot and another one not at all, if its place is free for so long."""
        life, other, wanted = self.life[buffer], self.life[instead], self.cells[buffer]
        shared = wanted & self.cells[instead]
        longer = Lifetime(life.end + 1, until)
        for slot, taken in enumerate(self.taken[longer.start : longer.end + 1], longer.start):
            held = taken & wanted
            if held and held != (shared if other.start <= slot <= other.end else 0):
                return False
        self._flip(instead, self.life.pop(instead))
        self._flip(buffer, longer)
        self.life[buffer] = Lifetime(life.start, max(life.end, until))
        return True

    def _flip(self, buffer: int, life: Lifetime) -> None:
        """Take free cells in some slots, or free the taken ones."""
        taken, cells = self.taken, self.cells[buffer]
        for slot in range(life.start, life.end + 1):
            taken[slot] ^= cells
