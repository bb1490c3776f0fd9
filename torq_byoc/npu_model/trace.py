"""The order of starts and waits in a program, with every slice program decoded, found without running it.

Sequencer blocks and slice programs reach LRAM by transfers of constant bytes, so a copy of LRAM that
follows those transfers alone knows the bytes of every program at the moment it starts.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from torq_byoc.errors import ProgramFormatError
from torq_byoc.npu_model.encoding import decode_nss, decode_slice_program
from torq_byoc.npu_model.isa import DMA_IN, SLICE, Engine, SliceTask, Start, StartDma, StartSlice, WaitFor
from torq_byoc.npu_model.program import NssBlock, Program
from torq_byoc.npu_model.xram import XramMap


class Job(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One start.

    Attributes:
        index: its number in program order.
        start: the start itself.
        engine: the engine that runs it.
        slice_index: the slice that runs it; 0 for other engines.
        nbytes: bytes transferred; 0 for a slice job.
        code, tasks: the slice program, encoded and decoded; empty for other engines.
    """

    index: int
    start: Start
    engine: Engine
    slice_index: int
    nbytes: int
    code: bytes = b""
    tasks: tuple[SliceTask, ...] = ()


class Step(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One sequencer task: jobs started at one moment, then waits.  ``last`` ends its block."""

    block: int
    jobs: tuple[Job, ...]
    waits: tuple[WaitFor, ...]
    last: bool


def trace(program: Program, xram: XramMap | None = None) -> Iterator[Step]:
    """The program's steps in order.

    Args:
        program: need not be verified.
        xram: its regions, when the caller has them already.

    Raises:
        ProgramFormatError: a block or slice program that was delivered is no valid encoding; raised when
            the walk reaches it.
    """
    shadow = _Shadow(program, xram or XramMap(program))
    index = 0
    for number, block in enumerate(program.blocks):
        tasks = decode_nss(shadow.block(number, block))
        for position, task in enumerate(tasks):
            jobs = []
            for start in task.starts:
                jobs.append(shadow.start(index, start))
                index += 1
            yield Step(number, tuple(jobs), task.waits, position == len(tasks) - 1)


class _Shadow:
    """LRAM as far as constants reach it."""

    def __init__(self, program: Program, xram: XramMap) -> None:
        self._xram = xram
        self._config = program.config
        self._bytes = np.zeros(program.config.lram_bytes, np.uint8)
        if program.blocks:
            self._place_first(program.blocks[0])

    def _place_first(self, block: NssBlock) -> None:
        for region in self._xram.regions:
            if region.data is not None and region.start <= block.address and block.address + block.size <= region.end:
                offset = block.address - region.start
                room = min(block.size, self._bytes.size)
                self._bytes[:room] = region.data[offset : offset + room]

    def block(self, number: int, block: NssBlock) -> bytes:
        """The bytes in the slot that a block executes from."""
        start = block.slot * self._config.nss_block_bytes
        return self._code(f"sequencer block {number}", start, block.size)

    def start(self, index: int, start: Start) -> Job:
        """Follow a start: copy constants, or read the slice program."""
        if type(start) is StartSlice:
            code = self._code(f"slice program of job {index}", start.address, start.size)
            try:
                return Job(index, start, SLICE, start.slice_index, 0, code, decode_slice_program(code))
            except ProgramFormatError as error:
                where = f"slice program of job {index}, {error.where}"
                raise ProgramFormatError(error.what, where=where, why=error.why, remedy=error.remedy) from error
        if start.engine is DMA_IN:
            self._load(start)
        return Job(index, start, start.engine, 0, start.descriptor.nbytes)

    def _load(self, start: StartDma) -> None:
        descriptor = start.descriptor
        end = descriptor.lram + descriptor.nbytes
        region = self._xram.find(descriptor) if descriptor.nbytes else None
        if region is None or region.data is None or end > self._bytes.size:
            return
        target = self._bytes[descriptor.lram : end]
        source = region.strided(region.data, descriptor)
        target.reshape(source.shape)[...] = source

    def _code(self, what: str, start: int, size: int) -> bytes:
        if size < 1 or start < 0 or start + size > self._bytes.size:
            raise ProgramFormatError(
                "a program lies outside LRAM",
                where=what,
                why=f"bytes {start}..{start + size} of {self._bytes.size}",
                remedy="compile the model again; the program bytes are damaged",
            )
        return self._bytes[start : start + size].tobytes()
