"""Declarations for hand-assembled programs, which have no compiler to make them."""

from __future__ import annotations

import dataclasses

import numpy as np
from msgspec import structs

from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.footprint import transfer_xram_bounds
from torq_byoc.npu_model.isa import Engine, StartDma
from torq_byoc.npu_model.program import DeclaredBuffer, JobInfo, Program
from torq_byoc.npu_model.provenance import job_seal, program_seal
from torq_byoc.npu_model.trace import Job, trace
from torq_byoc.npu_model.verifier_jobs import SliceJobs, transfer_access
from torq_byoc.npu_model.xram import XramMap


def declared(program: Program) -> Program:
    """A correct program with what it does declared as what was meant.

    Every region of XRAM is one buffer, and so are the LRAM bytes of every job that writes there.
    """
    tables = _Tables(program)
    jobs = tuple(
        tables.declare(job, program.jobs[job.index]) for step in trace(program, tables.xram) for job in step.jobs
    )
    program = dataclasses.replace(program, buffers=tuple(tables.buffers), jobs=jobs)
    return dataclasses.replace(program, seal=program_seal(program))


class _Tables:
    def __init__(self, program: Program) -> None:
        self.config, self.xram = program.config, XramMap(program)
        self.buffers = [DeclaredBuffer("xram", r.start, r.end - r.start) for r in self.xram.regions]
        self.live: list[int] = []

    def declare(self, job: Job, info: JobInfo) -> JobInfo:
        if isinstance(job.start, StartDma):
            reads, writes = self._transfer(job.start)
        else:
            access = SliceJobs(self.config).access(job.start, job.tasks, job.code)
            reads = self._holding(access.lram_reads.exact)
            writes = (self._new(access.lram_writes.exact),)
        return structs.replace(info, reads=reads, writes=writes, seal=job_seal(job.start, job.code))

    def _transfer(self, start: StartDma) -> tuple[tuple[int, ...], tuple[int, ...]]:
        access = transfer_access(start, self.config, self.xram)
        low, high = transfer_xram_bounds(start.descriptor)
        region = next(n for n, r in enumerate(self.xram.regions) if r.start <= low and high <= r.end)
        if self.xram.regions[region].kind == "nss":
            return (), ()
        if start.engine is Engine.DMA_IN:
            return (region,), (self._new(access.lram_writes.exact),)
        return self._holding(access.lram_reads.exact), (region,)

    def _new(self, written: np.ndarray) -> int:
        low, high = int(written[0, 0]), int(written[-1, 1])
        self.live = [n for n in self.live if not self._shares(n, intervals.interval(low, high))]
        self.live.append(len(self.buffers))
        self.buffers.append(DeclaredBuffer("lram", low, high - low))
        return self.live[-1]

    def _holding(self, read: np.ndarray) -> tuple[int, ...]:
        return tuple(number for number in self.live if self._shares(number, read))

    def _shares(self, number: int, touched: np.ndarray) -> bool:
        buffer = self.buffers[number]
        extent = intervals.interval(buffer.address, buffer.address + buffer.nbytes)
        return intervals.first_common(extent, touched) is not None
