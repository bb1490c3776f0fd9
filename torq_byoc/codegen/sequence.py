"""From ordered ops to NSS tasks: starts as early as the in-order sequencer allows, in program blocks.

Jobs are emitted by their earliest start time.  Before a job starts the sequencer waits for the engine
itself and for what the job depends on; as all of those end no later than the job's start time, waiting in
this order costs nothing over an out-of-order sequencer.  The program is cut into blocks of at most the
NSS block size; each block fetches its successor just before its own first DMA-in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torq_byoc.codegen.dependencies import Dependencies
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.encoding import nss_bytes, start_bytes, task_bytes
from torq_byoc.npu_model.isa import DmaDescriptor, Engine, NssTask, Start, StartDma, WaitFor

DMA_IN = WaitFor(Engine.DMA_IN)
FETCH = StartDma(Engine.DMA_IN, DmaDescriptor(0, 0, 1))


@dataclass
class _Block:
    """A block under construction; ``jobs`` has one entry a start: the op's position, or -1 for the fetch."""

    tasks: list[NssTask] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    size: int = 0
    fetched: bool = False


@dataclass(frozen=True)
class SequencedBlock:
    """Tasks of one block; the fetch of the next block is the start object ``FETCH`` until addresses are known."""

    tasks: tuple[NssTask, ...]
    jobs: tuple[int, ...]


class _Sequencer:
    def __init__(self, config: NpuConfig, engines: Collection[WaitFor]) -> None:
        self.engines = tuple(sorted({DMA_IN, *engines}, key=_rank))
        self.blocks = [_Block()]
        self.starts: list[Start] = []
        self.open_size = 0
        self.started: list[int] = []
        self.outstanding: dict[WaitFor, int] = {}
        self.done: dict[WaitFor, int] = {}
        self.fetch_outstanding = False
        self.empty_size = nss_bytes(())
        self.closing = task_bytes(len(self.engines))
        self.reserve = task_bytes(1) + start_bytes(FETCH) + self.closing
        self.room = config.nss_block_bytes - self.empty_size

    def _close(self, waits: Sequence[WaitFor]) -> None:
        """End the open task with these waits; the engines are idle from then on."""
        if not self.starts and not waits:
            return
        task = NssTask(tuple(self.starts), tuple(waits))
        block = self.blocks[-1]
        block.tasks.append(task)
        block.jobs += self.started
        block.size += self.open_size + task_bytes(len(task.waits))
        self.starts, self.started, self.open_size = [], [], 0
        for engine in waits:
            if engine in self.outstanding:
                self.done[engine] = max(self.done.get(engine, -1), self.outstanding.pop(engine))
        if DMA_IN in waits:
            self.fetch_outstanding = False

    def _start(self, start: Start, engine: WaitFor, position: int, needed: Mapping[WaitFor, int]) -> None:
        waits = [engine] if engine in self.outstanding else []
        for other, earlier in needed.items():
            if other in self.outstanding and other not in waits and self.done.get(other, -1) < earlier:
                waits.append(other)
        if waits:
            self._close(waits)
        self.starts.append(start)
        self.open_size += start_bytes(start)
        self.started.append(position)
        self.outstanding[engine] = position

    def emit(self, start: Start, engine: WaitFor, position: int, needed: Mapping[WaitFor, int]) -> None:
        """Append one job, opening a new block when the current one is full."""
        size = start_bytes(start)
        if self.blocks[-1].size + self.closing + self.open_size + size + self.reserve > self.room:
            self._end_block()
        if engine == DMA_IN and not self.blocks[-1].fetched:
            self._fetch()
        self._start(start, engine, position, needed)

    def _fetch(self) -> None:
        self._start(FETCH, DMA_IN, -1, {})
        self.started[-1] = -1
        self.blocks[-1].fetched = True
        self.fetch_outstanding = True

    def _end_block(self) -> None:
        """The successor must be in place: a later DMA-in has proved it, or the block waits for it."""
        if not self.blocks[-1].fetched:
            self._fetch()
        self._close([DMA_IN] if self.fetch_outstanding else [])
        self.blocks.append(_Block())

    def finish(self) -> tuple[SequencedBlock, ...]:
        """Wait for everything; the last block fetches nothing."""
        self._close(sorted(self.outstanding, key=_rank))
        last = self.blocks[-1]
        last.tasks = [NssTask(tuple(s for s in task.starts if s is not FETCH), task.waits) for task in last.tasks]
        last.jobs = [job for job in last.jobs if job != -1]
        return tuple(SequencedBlock(tuple(b.tasks), tuple(b.jobs)) for b in self.blocks)


def _rank(engine: WaitFor) -> tuple[str, int]:
    return engine.engine.value, engine.slice_index


def sequence(
    times: Sequence[int], found: Dependencies, starts: Sequence[Start], config: NpuConfig
) -> tuple[SequencedBlock, ...]:
    """Pack jobs into NSS tasks and blocks.

    Args:
        times: earliest start time of each job, from ``dependencies.start_times``.
        found: engine of each job, and what it depends on.
        starts: the command that starts each job.
        config: block size.
    """
    sequencer = _Sequencer(config, set(found.engines))
    for position in sorted(range(len(starts)), key=times.__getitem__):
        sequencer.emit(starts[position], found.engines[position], position, found.needed[position])
    return sequencer.finish()
