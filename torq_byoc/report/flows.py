"""Which job's bytes each job uses: the arrows of a timeline.

Followed byte by byte in program order, through LRAM and through the XRAM that a program writes: a job
depends on the last job that wrote a byte before it reads that byte.  A pair of jobs that merely use
neighbouring bytes, or whose strided operands interleave, is no dependency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.footprint import task_footprint, transfer_lram, transfer_xram
from torq_byoc.npu_model.isa import DmaDescriptor, Engine, StartDma, StartSlice
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.trace import Job, trace
from torq_byoc.npu_model.xram import XramMap


@dataclass(frozen=True)
class Flow:
    """Job ``reader`` reads bytes that job ``writer`` was the last to write, in memory "lram" or "xram"."""

    writer: int
    reader: int
    memory: str


def follow_flows(program: Program) -> tuple[Flow, ...]:
    """Every dependency through memory between two jobs once, in the order of the readers.

    Args:
        program: a verified program: jobs that run at once do not touch each other's bytes, so program order
            tells who wrote a byte last.
    """
    xram = XramMap(program)
    lram = _LastWriters(0, program.config.lram_bytes)
    outside = {r.start: _LastWriters(r.start, r.end - r.start) for r in xram.regions if r.writable}
    flows: dict[Flow, None] = {}
    for step in trace(program, xram):
        for job in step.jobs:
            if isinstance(job.start, StartDma):
                descriptor = job.start.descriptor
                region = _written_region(descriptor, xram, outside)
                found = _transfer(job.index, job.engine, descriptor, lram, region)
            else:
                found = _slice_job(job, job.start, lram)
            flows.update(dict.fromkeys(found))
    return tuple(flows)


class _LastWriters:
    """The job that wrote each byte of a stretch of memory last."""

    def __init__(self, start: int, nbytes: int) -> None:
        self._start = start
        self._jobs = np.zeros(nbytes, np.int32)  # a job's number + 1, so that untouched pages stay unallocated

    def write(self, touched: np.ndarray, job: int) -> None:
        """Note that a job writes a set of addresses."""
        intervals.assign(self._jobs, touched - self._start, job + 1)

    def of(self, touched: np.ndarray) -> list[int]:
        """The jobs that wrote any of a set of addresses, ascending."""
        found = intervals.select(self._jobs, touched - self._start)
        if not found.size:
            return []
        runs = np.concatenate(([0], np.flatnonzero(found[1:] != found[:-1]) + 1))
        return [int(job) - 1 for job in np.unique(found[runs]) if job]


def _written_region(descriptor: DmaDescriptor, xram: XramMap, outside: dict[int, _LastWriters]) -> _LastWriters | None:
    """The XRAM around a transfer, where a program can write it."""
    region = xram.find(descriptor) if descriptor.nbytes else None
    return outside.get(region.start) if region else None


def _transfer(
    job: int, engine: Engine, descriptor: DmaDescriptor, lram: _LastWriters, xram: _LastWriters | None
) -> Iterator[Flow]:
    inside = transfer_lram(descriptor)
    if engine is Engine.DMA_OUT:
        yield from (Flow(writer, job, "lram") for writer in lram.of(inside))
        if xram:
            xram.write(transfer_xram(descriptor), job)
        return
    if xram:
        yield from (Flow(writer, job, "xram") for writer in xram.of(transfer_xram(descriptor)))
    lram.write(inside, job)


def _slice_job(job: Job, start: StartSlice, lram: _LastWriters) -> Iterator[Flow]:
    """The program's bytes and the operands of its tasks; what an earlier task of the job wrote is its own."""
    writers = set(lram.of(intervals.interval(start.address, start.address + start.size)))
    for task in job.tasks:
        footprint = task_footprint(task)
        writers.update(lram.of(footprint.reads))
        lram.write(footprint.writes, job.index)
    yield from (Flow(writer, job.index, "lram") for writer in sorted(writers - {job.index}))
