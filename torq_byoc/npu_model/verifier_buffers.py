"""Whether jobs keep to the buffers that the compiler declared for them, and buffers to their time.

A buffer is one tenancy of its bytes.  It begins with the first job that writes the buffer, which makes the
whole of it undefined before anything of it is written, so what an earlier tenant left there counts as
never written; it ends for good when a job first writes another buffer that shares a byte.  Inputs and
constants are there from the start.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from torq_byoc.npu_model.isa import DMA_IN, SLICE
from torq_byoc.npu_model.program import JobInfo, Program
from torq_byoc.npu_model.touched import Touched
from torq_byoc.npu_model.trace import Job
from torq_byoc.npu_model.verifier_jobs import JobAccess
from torq_byoc.npu_model.verifier_memory import Memory

_LRAM, _XRAM = 0, 1
_AWAITED, _LIVE, _OVER = 0, 1, 2


class _Live:
    """The live buffers of one memory as (first byte, byte after the last, number), in this order."""

    def __init__(self) -> None:
        self._sorted: list[tuple[int, int, int]] = []
        self._longest = 0

    def take_over(self, low: int, high: int) -> list[int]:
        """End the buffers that share one of the bytes low..high-1; returns their numbers."""
        first = bisect_left(self._sorted, (low - self._longest,))
        last = bisect_left(self._sorted, (high,))
        near = self._sorted[first:last]
        over = [number for _, end, number in near if end > low]
        if over:
            self._sorted[first:last] = [buffer for buffer in near if buffer[1] <= low]
        return over

    def add(self, number: int, low: int, high: int) -> None:
        """Begin a buffer."""
        insort(self._sorted, (low, high, number))
        self._longest = max(self._longest, high - low)


class Tenancies:
    """The declared buffers of a program, and which of them are live."""

    def __init__(self, program: Program) -> None:
        table = program.buffers
        self._space = [_LRAM if buffer.space == "lram" else _XRAM for buffer in table]
        self._extent = [(buffer.address, buffer.address + buffer.nbytes) for buffer in table]
        written = {number for job in program.jobs for number in job.writes}
        self._state = [
            _LIVE if space and number not in written else _AWAITED for number, space in enumerate(self._space)
        ]
        self._live = (_Live(), _Live())
        for number, state in enumerate(self._state):
            if state == _LIVE:
                self._live[self._space[number]].add(number, *self._extent[number])

    def problems(self, job: Job, info: JobInfo, access: JobAccess) -> list[str]:
        """What the job touches that is not declared for it, or is not there any more."""
        found = []
        for number in info.reads:
            if self._state[number] != _LIVE:
                found.append(f"reads {self._name(number)}, {self._why_not(number)}")
        for number in info.writes:
            if self._state[number] == _OVER:
                found.append(f"writes {self._name(number)}, {self._why_not(number)}")
        found += [stray for stray in self._strays(job, info, access) if stray]
        return found

    def begin(self, info: JobInfo, memory: Memory) -> None:
        """Begin the tenancies of the buffers that a job is the first to write."""
        for number in info.writes:
            if self._state[number] != _AWAITED:
                continue
            (low, high), space = self._extent[number], self._space[number]
            for other in self._live[space].take_over(low, high):
                self._state[other] = _OVER
            self._live[space].add(number, low, high)
            self._state[number] = _LIVE
            memory.forget(low, high, lram=space == _LRAM)

    def _strays(self, job: Job, info: JobInfo, access: JobAccess) -> tuple[str, str]:
        """What the job reads, and what it writes, outside its buffers; empty where that is nothing."""
        if job.engine is SLICE:
            reads = self._stray("reads", access.lram_reads, (*info.reads, *info.writes), _LRAM)
            return reads, self._stray("writes", access.lram_writes, info.writes, _LRAM)
        if job.engine is DMA_IN:
            reads = self._stray("reads", access.outside, info.reads, _XRAM)
            return reads, self._stray("writes", access.lram_writes, info.writes, _LRAM)
        reads = self._stray("reads", access.lram_reads, info.reads, _LRAM)
        return reads, self._stray("writes", access.outside, info.writes, _XRAM)

    def _stray(self, verb: str, touched: Touched, numbers: Sequence[int], space: int) -> str:
        """Where bytes are touched outside some buffers of a memory."""
        extents, spaces = self._extent, self._space
        for start, end in touched.spans:
            for number in numbers:
                low, high = extents[number]
                if low <= start and end <= high and spaces[number] == space:
                    break
            else:
                break
        else:
            return ""
        stray = touched.first_outside([self._extent[number] for number in numbers if self._space[number] == space])
        if stray is None:
            return ""
        memory = "XRAM" if space else "LRAM"
        return f"{verb} {memory} bytes {stray[0]:#x}..{stray[1]:#x}, outside the buffers declared for it"

    def _name(self, number: int) -> str:
        memory = "XRAM" if self._space[number] else "LRAM"
        low, high = self._extent[number]
        return f"buffer {number} at {memory} {low:#x}..{high:#x}"

    def _why_not(self, number: int) -> str:
        return "which nothing has written" if self._state[number] == _AWAITED else "whose place another one has taken"
