"""Whether jobs keep to the buffers that the compiler declared for them, and buffers to their time.

A buffer is one tenancy of its bytes.  It begins with the first job that writes the buffer, which makes the
whole of it undefined before anything of it is written, so what an earlier tenant left there counts as
never written; it ends for good when a job first writes another buffer that shares a byte.  Inputs and
constants are there from the start.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.footprint import transfer_xram_bounds
from torq_byoc.npu_model.isa import Engine, StartDma
from torq_byoc.npu_model.program import JobInfo, Program
from torq_byoc.npu_model.trace import Job
from torq_byoc.npu_model.verifier_jobs import JobAccess
from torq_byoc.npu_model.verifier_memory import Memory

_LRAM, _XRAM = 0, 1
_AWAITED, _LIVE, _OVER = 0, 1, 2


class Tenancies:
    """The declared buffers of a program, and which of them are live."""

    def __init__(self, program: Program) -> None:
        table = program.buffers
        self._space = np.array([_LRAM if buffer.space == "lram" else _XRAM for buffer in table], np.int8)
        self._low = np.array([buffer.address for buffer in table], np.int64)
        self._high = self._low + np.array([buffer.nbytes for buffer in table], np.int64)
        written = {number for job in program.jobs for number in job.writes}
        self._state = np.array(
            [_LIVE if space and number not in written else _AWAITED for number, space in enumerate(self._space)],
            np.int8,
        )
        started = self._state == _LIVE
        self._live = [np.flatnonzero(started & (self._space == space)) for space in (_LRAM, _XRAM)]
        """Numbers of the live buffers of each memory: few in LRAM, where each byte has one tenant at most."""

    def problems(self, job: Job, info: JobInfo, access: JobAccess) -> Iterator[str]:
        """What the job touches that is not declared for it, or is not there any more."""
        for number in info.reads:
            if self._state[number] != _LIVE:
                yield f"reads {self._name(number)}, {self._why_not(number)}"
        for number in info.writes:
            if self._state[number] == _OVER:
                yield f"writes {self._name(number)}, {self._why_not(number)}"
        for what, touched, space, numbers in _touched(job, info, access):
            stray = self._stray(touched, numbers, space)
            if stray:
                memory = "XRAM" if space else "LRAM"
                yield f"{what} {memory} bytes {stray[0]:#x}..{stray[1]:#x}, outside the buffers declared for it"

    def begin(self, info: JobInfo, memory: Memory) -> None:
        """Begin the tenancies of the buffers that a job is the first to write."""
        for number in info.writes:
            if self._state[number] != _AWAITED:
                continue
            low, high, space = self._low[number], self._high[number], self._space[number]
            live = self._live[space]
            over = (self._low[live] < high) & (self._high[live] > low)
            self._state[live[over]] = _OVER
            self._state[number] = _LIVE
            self._live[space] = np.append(live[~over], number)
            memory.forget(int(low), int(high), lram=space == _LRAM)

    def _stray(self, touched: np.ndarray, numbers: tuple[int, ...], space: int) -> tuple[int, int] | None:
        """The first interval that is touched outside some buffers of a memory, or None."""
        if not len(touched):
            return None
        first, end = touched[0, 0], touched[-1, 1]
        own = [number for number in numbers if self._space[number] == space]
        if any(self._low[number] <= first and end <= self._high[number] for number in own):
            return None
        extent = [intervals.interval(int(self._low[number]), int(self._high[number])) for number in own]
        return intervals.first_outside(touched, intervals.union(extent))

    def _name(self, number: int) -> str:
        memory = "XRAM" if self._space[number] else "LRAM"
        return f"buffer {number} at {memory} {self._low[number]:#x}..{self._high[number]:#x}"

    def _why_not(self, number: int) -> str:
        return "which nothing has written" if self._state[number] == _AWAITED else "whose place another one has taken"


def _touched(job: Job, info: JobInfo, access: JobAccess) -> Iterator[tuple[str, np.ndarray, int, tuple[int, ...]]]:
    """(verb, bytes, space, buffers that may hold them) of everything a job touches."""
    if isinstance(job.start, StartDma):
        outside = intervals.interval(*transfer_xram_bounds(job.start.descriptor))
        incoming = job.start.engine is Engine.DMA_IN
        yield "reads", *((outside, _XRAM) if incoming else (access.lram_reads, _LRAM)), info.reads
        yield "writes", *((access.lram_writes, _LRAM) if incoming else (outside, _XRAM)), info.writes
        return
    yield "reads", access.lram_reads, _LRAM, (*info.reads, *info.writes)
    yield "writes", access.lram_writes, _LRAM, info.writes
