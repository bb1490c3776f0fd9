"""Changes to the bytes of a program, sealed again as if the compiler had meant them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec.structs
import numpy as np

from torq_byoc.accuracy.programs.intent import Intent
from torq_byoc.accuracy.stages import Stages
from torq_byoc.codegen.hl import Load, SliceRun
from torq_byoc.compiled_model import Partition, program_reference
from torq_byoc.errors import ProgramFormatError
from torq_byoc.npu_model.container import pack_container, unpack_container
from torq_byoc.npu_model.encoding import decode_nss, decode_slice_program, encode_nss, encode_slice_program
from torq_byoc.npu_model.isa import NssTask, SliceTask, Start
from torq_byoc.npu_model.program import JobInfo, Program
from torq_byoc.npu_model.provenance import job_seal, program_seal
from torq_byoc.npu_model.trace import trace


@dataclass(frozen=True)
class Code:
    """A slice program in the XRAM image, and the jobs that run it."""

    address: int
    size: int
    jobs: tuple[int, ...]


class ProgramEditor:
    """A program in parts that can be changed.

    Args:
        intent: the program, and what its jobs are meant to do.
    """

    def __init__(self, intent: Intent) -> None:
        self._intent, self._program = intent, intent.program
        self._data = {segment.address: bytearray(segment.data) for segment in self._program.segments}
        self._blocks = [list(decode_nss(self.read(block.address, block.size))) for block in self._program.blocks]
        self._jobs = list(self._program.jobs)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the image."""
        start, data = self._segment(address)
        return bytes(data[address - start : address - start + size])

    def write(self, address: int, data: bytes) -> None:
        """Change bytes of the image."""
        start, segment = self._segment(address)
        segment[address - start : address - start + len(data)] = data

    def _segment(self, address: int) -> tuple[int, bytearray]:
        return next((s, data) for s, data in self._data.items() if s <= address < s + len(data))

    def codes(self) -> list[Code]:
        """The slice programs of the image."""
        found: dict[tuple[int, int], list[int]] = {}
        held: dict[int, int] = {}
        for job, op in enumerate(self._intent.jobs):
            if isinstance(op, Load):
                held[op.target.buffer] = op.source.buffer
            elif isinstance(op, SliceRun):
                address = self._intent.address[held[op.program]] + op.program_offset
                found.setdefault((address, op.program_bytes), []).append(job)
        return [Code(*key, tuple(jobs)) for key, jobs in found.items()]

    def tasks(self, code: Code) -> tuple[SliceTask, ...]:
        """The tasks of a slice program."""
        return decode_slice_program(self.read(code.address, code.size))

    def replace_tasks(self, code: Code, tasks: Sequence[SliceTask]) -> None:
        """Put other tasks of the same size in their place."""
        data = encode_slice_program(tasks)
        assert len(data) == code.size, "a change of a field changed the size of a task"
        self.write(code.address, data)

    def change_start(self, job: int, change: Callable[[Start], Start | None]) -> None:
        """Replace a start by another one, or with None leave it out."""
        number = 0
        for block in self._blocks:
            for position, task in enumerate(block):
                if number <= job < number + len(task.starts):
                    starts = list(task.starts)
                    changed = change(starts[job - number])
                    starts[job - number : job - number + 1] = [] if changed is None else [changed]
                    block[position] = NssTask(tuple(starts), task.waits)
                    if changed is None:
                        del self._jobs[job]
                    return
                number += len(task.starts)
        raise IndexError(f"there is no job {job}")

    def finish(self) -> Program:
        """The changed program, its seals made anew."""
        blocks = []
        for block, tasks in zip(self._program.blocks, self._blocks, strict=True):
            data = encode_nss(tuple(tasks))
            self.write(block.address, data)
            blocks.append(replace(block, size=len(data)))
        segments = tuple(replace(s, data=bytes(self._data[s.address])) for s in self._program.segments)
        changed = replace(self._program, segments=segments, blocks=tuple(blocks), jobs=tuple(self._jobs))
        changed = replace(changed, jobs=tuple(self._sealed(changed)))
        return replace(changed, seal=program_seal(changed))

    def _sealed(self, program: Program) -> Iterator[JobInfo]:
        """Job declarations with new seals, up to the first job whose bytes are no program."""
        number = 0
        with contextlib.suppress(ProgramFormatError):
            for step in trace(program):
                for job in step.jobs:
                    yield msgspec.structs.replace(self._jobs[number], seal=job_seal(job.start, job.code))
                    number += 1
        yield from self._jobs[number:]


def with_program(stages: Stages, symbol: str, program: Program) -> Stages:
    """The stages with another program for a partition; the host module refers to it."""
    facts = next(one.facts for one in stages.compiled.partitions if one.facts.symbol == symbol)
    return with_partition(stages, Partition(facts, pack_container(program.to_sections())))


def with_partition(stages: Stages, partition: Partition) -> Stages:
    """The stages with another compiled partition in place of the one of its symbol."""
    compiled, symbol = stages.compiled, partition.facts.symbol
    old = next(one for one in compiled.partitions if one.facts.symbol == symbol)
    partitions = tuple(partition if one is old else one for one in compiled.partitions)
    host = _referring(compiled.host, program_reference(old.blob), program_reference(partition.blob))
    return replace(stages, compiled=replace(compiled, partitions=partitions, host=host))


def _referring(host: bytes, old: bytes, new: bytes) -> bytes:
    if not host:
        return host
    return pack_container({name: data.replace(old, new) for name, data in unpack_container(host).items()})


def permuted(rng: np.random.Generator, count: int) -> np.ndarray:
    """A permutation that is not the identity."""
    while True:
        order = rng.permutation(count)
        if count < 2 or (order != np.arange(count)).any():
            return order
