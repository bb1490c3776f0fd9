"""Jobs in flight, and whether two of them may be in flight together."""

from __future__ import annotations

from collections.abc import Iterator

from torq_byoc.npu_model.isa import SLICE, Engine, WaitFor
from torq_byoc.npu_model.touched import Touched, spans_meet
from torq_byoc.npu_model.trace import Job
from torq_byoc.npu_model.verifier_jobs import JobAccess

_SEQUENCER = (Engine.CSS, -1)


class InFlight:
    """Started jobs that no wait has ordered yet, one an engine, and the sequencer's own block."""

    def __init__(self) -> None:
        self._running: dict[tuple[Engine, int], tuple[int, JobAccess]] = {}

    def execute_block(self, start: int, end: int) -> None:
        """From now on the sequencer reads its block at these LRAM bytes."""
        self._running[_SEQUENCER] = (-1, JobAccess(lram_reads=Touched.all_of(start, end)))

    def start(self, job: Job, access: JobAccess) -> list[str]:
        """Add a job, and say why it may not start now."""
        engine, found = (job.engine, job.slice_index), []
        if engine in self._running:
            found.append(f"the engine is busy with job {self._running[engine][0]}, which nothing waited for")
        for other, (index, running) in self._running.items():
            if other != engine and _may_conflict(access, running):
                found += _conflicts(index, access, running)
        self._running[engine] = (job.index, access)
        return found

    def wait(self, wait: WaitFor) -> None:
        """Everything the engine did is now ordered before what follows."""
        index = wait.slice_index if wait.engine is SLICE else 0
        self._running.pop((wait.engine, index), None)

    def writer_of(self, start: int, end: int) -> int | None:
        """The job in flight that writes any of these LRAM bytes, or None."""
        wanted = Touched.all_of(start, end)
        for index, access in self._running.values():
            if access.lram_writes.first_common(wanted):
                return index
        return None

    def jobs(self) -> list[int]:
        """Jobs that nothing has waited for."""
        return sorted(index for engine, (index, _) in self._running.items() if engine != _SEQUENCER)


def _may_conflict(mine: JobAccess, theirs: JobAccess) -> bool:
    """Whether spans of the two meet that one of them writes; few jobs write XRAM.

    Every job is held against all in flight: what is asked most often is asked here, without a call.
    """
    their_reads, their_writes = theirs.lram_reads.spans, theirs.lram_writes.spans
    for start, end in mine.lram_writes.spans:
        for low, high in their_reads:
            if start < high and low < end:
                return True
        for low, high in their_writes:
            if start < high and low < end:
                return True
    for start, end in their_writes:
        for low, high in mine.lram_reads.spans:
            if start < high and low < end:
                return True
    written, others = mine.xram_writes.spans, theirs.xram_writes.spans
    if not written and not others:
        return False
    return (
        spans_meet(written, theirs.xram_reads.spans)
        or spans_meet(written, others)
        or spans_meet(mine.xram_reads.spans, others)
    )


def _conflicts(index: int, mine: JobAccess, theirs: JobAccess) -> Iterator[str]:
    """Bytes that two jobs share and one of them writes."""
    for memory, my_verb, own, their_verb, others in (
        ("LRAM", "writes", mine.lram_writes, "reads", theirs.lram_reads),
        ("LRAM", "writes", mine.lram_writes, "writes", theirs.lram_writes),
        ("LRAM", "reads", mine.lram_reads, "writes", theirs.lram_writes),
        ("XRAM", "writes", mine.xram_writes, "reads", theirs.xram_reads),
        ("XRAM", "writes", mine.xram_writes, "writes", theirs.xram_writes),
        ("XRAM", "reads", mine.xram_reads, "writes", theirs.xram_writes),
    ):
        shared = own.first_common(others)
        if shared:
            other = "the sequencer's block" if index < 0 else f"job {index}, in flight,"
            yield f"{my_verb} {memory} bytes {shared[0]:#x}..{shared[1]:#x}, which {other} {their_verb}"
