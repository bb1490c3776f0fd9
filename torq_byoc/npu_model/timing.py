"""The cycle model: what tasks and transfers cost, and when every job of a program runs.

Three profiles, always named in what is printed:

* ``reference``: each DMA direction has the full rate and a transfer has no fixed cost, as the vendor's
  compile-time profiler assumes (hardware doc 5);
* ``shared``: transfers in both directions at once share the rate of one channel;
* ``pessimistic``: shared, and every transfer costs ``pessimistic_transfer_cycles`` more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import msgspec

from torq_byoc.errors import ScheduleError, require_known
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import DMA_IN, DMA_OUT, SLICE, Agent, Engine, Op1, SliceTask, StartDma, WaitFor
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.trace import Job, Step, trace

_SLICE_START_CYCLES = 1
_FREE = frozenset({Agent.REF, Agent.CEPW})
"""Agents whose walks cost nothing."""
_IRAM_SEGMENTS = 4
"""Cycles of DEDR that make one load of a block transposition."""


class Profile(Enum):
    """Assumptions about transfers; the value is the name on the command line and in reports."""

    REFERENCE = "reference"
    SHARED = "shared"
    PESSIMISTIC = "pessimistic"

    @classmethod
    def named(cls, name: Profile | str) -> Profile:
        """The profile of a name; a profile itself as it is.

        Raises:
            ScheduleError: there is none of that name.
        """
        if isinstance(name, Profile):
            return name
        require_known(ScheduleError, "timing profile", [name], (known.value for known in cls), where="profile")
        return cls(name)


def task_cycles(task: SliceTask) -> int:
    """Cycles of one slice task (hardware doc 4.2).

    max(D, W, B, Q, CEPR) with D = max(DEDR, CEDW, CEDR), W = max(DEWR, CEWW, CEWR),
    B = max(DEBR, ACBW, ACBR) and Q = max(DEQW, ACPR), so the maximum over all agents but REF and CEPW.  Loads and
    stores of block transpositions count one after the other (4.3: 4 loads and 16 stores a block of 32 x 32 bytes).
    """
    if task.alu is not None and task.alu.op1 is Op1.CARRY:
        walked = {ndl.agent: ndl.cycles() for ndl in task.ndls}
        return math.ceil(walked.get(Agent.DEDR, 0) / _IRAM_SEGMENTS) + walked.get(Agent.DEQW, 0)
    walks = {id(ndl.dims): ndl for ndl in task.ndls if ndl.agent not in _FREE}  # most registers share their dims
    return max([ndl.cycles() for ndl in walks.values()], default=0)


def program_cycles(tasks: tuple[SliceTask, ...]) -> int:
    """Cycles of a slice program: the sum over its tasks."""
    return sum(map(task_cycles, tasks))


def dma_cycles(nbytes: int, config: NpuConfig) -> int:
    """Cycles of a transfer that has its channel to itself."""
    return math.ceil(nbytes / config.dma_bytes_per_cycle)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One job on the timeline: cycles [start, end) of its engine."""

    job: int
    engine: Engine
    slice_index: int
    start: int
    end: int
    nbytes: int

    @property
    def track(self) -> str:
        """The engine's name in reports: "dma_in", "dma_out", "slice0", ..."""
        return track_name(self.engine, self.slice_index)


def track_name(engine: Engine, slice_index: int) -> str:
    """An engine's name in reports: "dma_in", "dma_out", "slice0", ..."""
    return f"slice{slice_index}" if engine is SLICE else engine.value


@dataclass(frozen=True)
class Timeline:
    """When every job runs.  ``events`` are in job order; ``total_cycles`` is when the last engine is idle."""

    profile: Profile
    events: tuple[Event, ...]
    total_cycles: int
    busy: dict[str, int]

    @cached_property
    def both_slices_busy_cycles(self) -> int:
        """Cycles in which at least two slices run."""
        return _covered(self._of({SLICE}), 2)

    @cached_property
    def slice_busy_cycles(self) -> int:
        """Cycles in which at least one slice runs."""
        return _covered(self._of({SLICE}), 1)

    @cached_property
    def dma_busy_cycles(self) -> int:
        """Cycles in which at least one transfer runs."""
        return _covered(self._of({DMA_IN, DMA_OUT}), 1)

    @cached_property
    def hidden_dma_fraction(self) -> float:
        """Part of the cycles with a transfer in which a slice runs as well; 1.0 when nothing is transferred."""
        if not self.dma_busy_cycles:
            return 1.0
        either = _covered(self._of({DMA_IN, DMA_OUT, SLICE}), 1)
        return (self.dma_busy_cycles + self.slice_busy_cycles - either) / self.dma_busy_cycles

    def _of(self, engines: set[Engine]) -> list[Event]:
        return [event for event in self.events if event.engine in engines]


def simulate_timeline(
    program: Program, profile: Profile | str = Profile.REFERENCE, steps: Iterable[Step] | None = None
) -> Timeline:
    """Walk the sequencer's starts and waits (hardware doc 5.3).

    One timestamp t: a start occupies its engine from t (or from when it is idle), starting a slice takes
    the sequencer one cycle, a wait sets t to the end of the engine's last job.

    Args:
        program: need not be verified.
        profile: assumptions about transfers.
        steps: the program's ``trace``, when the caller has it already.

    Raises:
        ProgramFormatError: a block or slice program is no valid encoding.
        ScheduleError: an unknown profile name.
    """
    clock = _Clock(program.config, Profile.named(profile))
    for step in trace(program) if steps is None else steps:
        slices = 0
        for job in step.jobs:
            clock.start(job)
            slices += job.engine is SLICE
        clock.after_starts(slices)
        for wait in step.waits:
            clock.wait(wait)
    return clock.finish()


class _Clock:
    """The sequencer's time, the slices' ends, and the transfers under way."""

    def __init__(self, config: NpuConfig, profile: Profile) -> None:
        self._config = config
        self._profile = profile
        self._now = 0
        self._slice_ends: dict[int, int] = {}
        self._bus = _Channels() if profile is Profile.REFERENCE else _Bus()
        self._events: dict[int, Event] = {}
        self._cycles: dict[bytes, int] = {}
        """Of the slice programs that have run."""

    def start(self, job: Job) -> None:
        if type(job.start) is StartDma:
            fixed = self._config.pessimistic_transfer_cycles if self._profile is Profile.PESSIMISTIC else 0
            begin = self._bus.wait(job.engine, self._now)
            self._bus.start(job, begin, dma_cycles(job.nbytes, self._config) + fixed)
            return
        begin = max(self._now, self._slice_ends.get(job.slice_index, 0))
        if job.code not in self._cycles:
            self._cycles[job.code] = program_cycles(job.tasks)
        end = begin + self._cycles[job.code]
        self._slice_ends[job.slice_index] = end
        self._events[job.index] = Event(job.index, job.engine, job.slice_index, begin, end, 0)

    def after_starts(self, slices: int) -> None:
        self._now += slices * _SLICE_START_CYCLES

    def wait(self, wait: WaitFor) -> None:
        if wait.engine is SLICE:
            self._now = max(self._now, self._slice_ends.get(wait.slice_index, 0))
        else:
            self._now = self._bus.wait(wait.engine, self._now)

    def finish(self) -> Timeline:
        ends = [self._bus.wait(engine, self._now) for engine in (DMA_IN, DMA_OUT)]
        events = self._events | {event.job: event for event in self._bus.events}
        total = max([self._now, *ends, *self._slice_ends.values()])
        busy = {track_name(engine, 0): 0 for engine in (DMA_IN, DMA_OUT)}
        busy |= {track_name(SLICE, number): 0 for number in range(self._config.slices)}
        worked: dict[tuple[Engine, int], int] = {}
        for event in events.values():
            engine = (event.engine, event.slice_index)
            worked[engine] = worked.get(engine, 0) + event.end - event.start
        for engine, cycles in worked.items():
            busy[track_name(*engine)] = cycles
        return Timeline(self._profile, tuple(events[job] for job in sorted(events)), total, busy)


class _Channels:
    """Transfers under way, one a direction, which do not slow each other down."""

    def __init__(self) -> None:
        self._now = 0
        self._ends: dict[Engine, int] = {}
        self.events: list[Event] = []

    def start(self, job: Job, now: int, cycles: int) -> None:
        begin = max(now, self._now)
        self._ends[job.engine] = begin + cycles
        self.events.append(Event(job.index, job.engine, 0, begin, begin + cycles, job.nbytes))

    def wait(self, engine: Engine, now: int) -> int:
        """The time, at least ``now``, at which an engine is idle."""
        self._now = max(now, self._now, self._ends.get(engine, 0))
        return self._now


@dataclass
class _Transfer:
    job: Job
    start: int
    left: int
    """Work left in half cycles of the full rate, so that two transfers at half rate stay in integers."""


class _Bus:
    """Transfers under way, one a direction; at half rate each when both are active."""

    def __init__(self) -> None:
        self._now = 0
        self._active: dict[Engine, _Transfer] = {}
        self.events: list[Event] = []

    def start(self, job: Job, now: int, cycles: int) -> None:
        self._advance(now)
        self._active[job.engine] = _Transfer(job, max(now, self._now), 2 * cycles)
        self._retire()

    def wait(self, engine: Engine, now: int) -> int:
        """The time, at least ``now``, at which an engine is idle."""
        self._advance(now)
        while engine in self._active:
            self._advance(self._next_end())
        return max(now, self._now)

    def _speed(self) -> int:
        return 1 if len(self._active) == 2 else 2

    def _next_end(self) -> int:
        least = min(transfer.left for transfer in self._active.values())
        return self._now + -(-least // self._speed())

    def _advance(self, now: int) -> None:
        while self._now < now:
            until = min(now, self._next_end()) if self._active else now
            done = (until - self._now) * self._speed()
            for transfer in self._active.values():
                transfer.left -= done
            self._now = until
            self._retire()

    def _retire(self) -> None:
        for engine, transfer in list(self._active.items()):
            if transfer.left <= 0:
                job = transfer.job
                self.events.append(Event(job.index, engine, 0, transfer.start, self._now, job.nbytes))
                del self._active[engine]


def _covered(events: list[Event], depth: int) -> int:
    """Cycles in which at least ``depth`` of the events run."""
    edges = sorted([(event.start, 1) for event in events] + [(event.end, -1) for event in events])
    covered = running = 0
    for (time, change), (following, _) in zip(edges, edges[1:], strict=False):
        running += change
        if running >= depth:
            covered += following - time
    return covered
