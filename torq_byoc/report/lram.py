"""What LRAM holds over time, followed through a program's jobs: occupancy, and what lies where.

A byte is occupied from the start of the job that writes it to the end of the last job that reads it before
it is written again.  Every operand counts with the whole span between its first and last byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.footprint import TaskFootprint, task_footprint
from torq_byoc.npu_model.isa import Engine, StartDma, StartSlice
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.timing import Timeline
from torq_byoc.npu_model.trace import Job, trace

Span = tuple[int, int]
_TIME_BITS = 31


@dataclass(frozen=True)
class LramSpan:
    """Bytes start..end-1 that a layer uses for one purpose ("weights", "program", "activation", "result", ...)."""

    layer: str
    kind: str
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class LramUse:
    """LRAM over one run of a program.

    Attributes:
        occupancy: (cycle, bytes) at every change.
        spans: what lies where, in the order of first use.
    """

    occupancy: tuple[tuple[int, int], ...]
    spans: tuple[LramSpan, ...]

    @property
    def peak(self) -> int:
        """The largest number of bytes occupied at one time."""
        return max((held for _, held in self.occupancy), default=0)


def follow_lram(program: Program, timeline: Timeline) -> LramUse:
    """Follow every write and read of LRAM in program order."""
    times = {event.job: (event.start, event.end) for event in timeline.events}
    cells = _Cells(program.config.lram_bytes, program.config.lram_word)
    spans: dict[LramSpan, None] = {}
    for step in trace(program):
        for job in step.jobs:
            info = program.jobs[job.index]
            start, end = times[job.index]
            footprints = [task_footprint(task) for task in job.tasks]
            for span in _reads(job, footprints):
                cells.read(span, end)
            for span in _writes(job, footprints):
                cells.write(span, job.index, start, end)
                kind = "result" if job.engine is Engine.SLICE else info.kind
                spans[LramSpan(info.label, kind, *span)] = None
    return LramUse(cells.occupancy(), tuple(spans))


def _reads(job: Job, footprints: Sequence[TaskFootprint]) -> Iterator[Span]:
    if isinstance(job.start, StartSlice):
        yield job.start.address, job.start.address + job.start.size
        for footprint in footprints:
            for operand in footprint.operands.values():
                yield from _hull(operand)
    elif isinstance(job.start, StartDma) and job.engine is Engine.DMA_OUT:
        yield _transfer(job.start)


def _writes(job: Job, footprints: Sequence[TaskFootprint]) -> Iterator[Span]:
    for footprint in footprints:
        yield from _hull(footprint.writes)
    if isinstance(job.start, StartDma) and job.engine is Engine.DMA_IN:
        yield _transfer(job.start)


def _transfer(start: StartDma) -> Span:
    return start.descriptor.lram, start.descriptor.lram + start.descriptor.nbytes


def _hull(intervals: np.ndarray) -> Iterator[Span]:
    if len(intervals):
        yield int(intervals[0, 0]), int(intervals[-1, 1])


class _Cells:
    """The words of LRAM: who wrote each, when, and until when it is needed."""

    def __init__(self, nbytes: int, word: int) -> None:
        self._word = word
        words = -(-nbytes // word)
        self._writer = np.full(words, -1, np.int64)
        self._born = np.zeros(words, np.int64)
        self._needed = np.zeros(words, np.int64)
        self._lives: dict[int, int] = {}

    def read(self, span: Span, end: int) -> None:
        """Note a read that ends at a time."""
        words = self._slice(span)
        self._needed[words] = np.maximum(self._needed[words], end)

    def write(self, span: Span, job: int, start: int, end: int) -> None:
        """Note a write; a word that the same job wrote before stays alive since then.

        A word has one life at a time: where spans of slices that run together overlap, the earlier one ends.
        """
        words = self._slice(span)
        mine = self._writer[words] == job
        ended = np.maximum(np.minimum(self._needed[words], start), self._born[words])
        self._needed[words] = np.where(mine, self._needed[words], ended)
        self._retire(words, ~mine)
        self._born[words] = np.where(mine, self._born[words], start)
        self._writer[words] = job
        self._needed[words] = end

    def occupancy(self) -> tuple[tuple[int, int], ...]:
        """Bytes occupied at every change, once nothing more happens."""
        everything = slice(0, self._writer.size)
        self._retire(everything, np.ones(self._writer.size, bool))
        changes: dict[int, int] = {}
        for key, words in self._lives.items():
            born, needed = key >> _TIME_BITS, key & ((1 << _TIME_BITS) - 1)
            changes[born] = changes.get(born, 0) + words * self._word
            changes[needed] = changes.get(needed, 0) - words * self._word
        held, points = 0, []
        for time in sorted(changes):
            held += changes[time]
            points.append((time, held))
        return tuple(points)

    def _slice(self, span: Span) -> slice:
        return slice(span[0] // self._word, -(-span[1] // self._word))

    def _retire(self, words: slice, chosen: np.ndarray) -> None:
        """Record the lives of chosen words that were written."""
        chosen = chosen & (self._writer[words] >= 0)
        lives = (self._born[words][chosen] << _TIME_BITS) | self._needed[words][chosen]
        for key, count in zip(*np.unique(lives, return_counts=True), strict=True):
            self._lives[int(key)] = self._lives.get(int(key), 0) + int(count)
