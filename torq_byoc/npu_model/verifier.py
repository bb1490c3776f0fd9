"""Static proof that a program is safe: what every job touches is known, allowed, defined and ordered.

``check`` follows the sequencer's starts and waits with the exact bytes of every job (``footprint.py``):

* limits: every field and descriptor is one the machine has;
* bounds: transfers stay inside one region of XRAM, only outputs and the arena are written, nothing but
  block fetches touches the sequencer's slots in LRAM;
* definedness: no slice reads a byte that was not written before, every output byte is written; transfers
  may carry undefined bytes along (holes of phase planes), which stay undefined;
* programs: the bytes of a slice program or sequencer block came whole from a segment of that kind, and
  nothing touches them while they run;
* ordering: jobs in flight at once (started, not yet waited for) share no byte that one of them writes;
* engines: one outstanding job each, none at the end;
* partial sums: a slice task that continues from PRAM finds there what the task before it on that slice left for
  it, and nothing that was left is lost (``partials.py``).

All of this follows from the descriptors alone, and what keeps it has one result whatever the timing.  That it
is the result which was meant takes the compiler's declarations beside them:

* buffers: a job keeps to the buffers declared for it, and a buffer to its time (``verifier_buffers.py``);
* seals: every job is the one declared at its position, to the last bit (``provenance.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from torq_byoc.errors import ProgramFormatError, VerificationError
from torq_byoc.npu_model.isa import StartDma
from torq_byoc.npu_model.partials import CarriedSums
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.provenance import JobSeals, program_seal
from torq_byoc.npu_model.trace import Job, Step, trace
from torq_byoc.npu_model.verifier_buffers import Tenancies
from torq_byoc.npu_model.verifier_jobs import JobAccess, SliceJobs, transfer_access
from torq_byoc.npu_model.verifier_memory import CODE, DATA, NSS, Memory
from torq_byoc.npu_model.verifier_order import InFlight
from torq_byoc.npu_model.verifier_static import static_problems
from torq_byoc.npu_model.xram import XramMap

MAX_VIOLATIONS = 50


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    ``rule`` is "limit", "bounds", "undefined", "program", "order", "engine", "partial", "output", "buffer" or "seal";
    ``job`` is the number of the start in program order, or None when no single job is at fault.
    """

    rule: str
    job: int | None
    message: str


def verify(program: Program, steps: Iterable[Step] | None = None) -> None:
    """Refuse a program that breaks a rule.

    Args:
        program: the program.
        steps: its ``trace``, when the caller has it already.

    Raises:
        VerificationError: lists the first violations; ``details`` has their number and the first ones.
    """
    violations = check(program, steps)
    if not violations:
        return
    first = violations[0]
    shown = [_described(program, violation) for violation in violations[:5]]
    raise VerificationError(
        "the program is not safe to run",
        where=_place(program, first.job),
        why="; ".join(shown) + (f"; and {len(violations) - 5} more" if len(violations) > 5 else ""),
        remedy="report it with the model: the compiler must not emit such a program",
        details={"violations": len(violations), "first": shown},
    )


def check(
    program: Program, steps: Iterable[Step] | None = None, *, buffers: bool = True, seals: bool = True
) -> list[Violation]:
    """The rules a program breaks, in program order, at most ``MAX_VIOLATIONS``; empty when it is safe.

    Args:
        program: the program.
        steps: its ``trace``, when the caller has it already.
        buffers: False leaves out the rules "buffer".
        seals: False leaves out the rules "seal".
    """
    xram = XramMap(program)
    violations = [Violation(rule, None, message) for rule, message in static_problems(program, xram)]
    if violations:
        return violations[:MAX_VIOLATIONS]
    run = _Run(program, xram, buffers=buffers, seals=seals)
    try:
        for step in trace(program, xram) if steps is None else steps:
            run.step(step)
            if len(run.violations) >= MAX_VIOLATIONS:
                return run.violations[:MAX_VIOLATIONS]
    except ProgramFormatError as error:
        run.add("program", None, f"{error.what}, {error.where}: {error.why}")
        return run.violations
    run.finish()
    return run.violations


def _place(program: Program, job: int | None) -> str:
    if job is None:
        return "whole program"
    label = program.jobs[job].label if job < len(program.jobs) else ""
    return f"job {job}" + (f" of {label!r}" if label else "")


def _described(program: Program, violation: Violation) -> str:
    return f"[{violation.rule}] {_place(program, violation.job)}: {violation.message}"


class _Run:
    """The state of the walk: memory, jobs in flight, and what was found."""

    def __init__(self, program: Program, xram: XramMap, *, buffers: bool, seals: bool) -> None:
        self.program = program
        self.violations: list[Violation] = []
        self._seals = JobSeals() if seals else None
        self._tenancies = Tenancies(program) if buffers else None
        self._xram = xram
        self._memory = Memory(program, xram)
        self._flight = InFlight()
        self._slices = SliceJobs(program.config)
        self._sums: defaultdict[int, CarriedSums] = defaultdict(CarriedSums)
        self._block = -1
        self._jobs = 0

    def add(self, rule: str, job: int | None, message: str) -> None:
        """Note a broken rule."""
        self.violations.append(Violation(rule, job, message))

    def step(self, step: Step) -> None:
        """Check one sequencer task."""
        if step.block != self._block:
            self._enter_block(step.block)
        for job in step.jobs:
            self._jobs += 1
            self._start(job)
        for wait in step.waits:
            self._flight.wait(wait)

    def finish(self) -> None:
        """Check the state after the last task."""
        for index, sums in self._sums.items():
            for message in sums.finish():
                self.add("partial", None, f"slice {index}: {message}")
        for index in self._flight.jobs():
            self.add("engine", index, "nothing waits for it to end")
        if self._jobs != len(self.program.jobs):
            self.add("program", None, f"{self._jobs} starts, {len(self.program.jobs)} job descriptions")
        if self._seals is not None and program_seal(self.program) != self.program.seal:
            self.add("seal", None, "bindings, buffers, job list or weights are not those that were declared")
        for name, missing in self._memory.undefined_outputs():
            self.add("output", None, f"{missing} bytes of output {name!r} are never written")

    def _enter_block(self, number: int) -> None:
        """Check that a block was delivered to its slot, and keep its bytes from being overwritten."""
        self._block = number
        block = self.program.blocks[number]
        start = block.slot * self.program.config.nss_block_bytes
        if number:
            writer = self._flight.writer_of(start, start + block.size)
            if writer is not None:
                self.add("order", writer, f"block {number} starts before its fetch is known to be complete")
        if not self._memory.holds(start, start + block.size, NSS, block.address):
            self.add("program", None, f"block {number} was not delivered whole to slot {block.slot}")
        self._flight.execute_block(start, start + block.size)

    def _start(self, job: Job) -> None:
        access = self._access(job)
        for rule, message in access.problems:
            self.add(rule, job.index, message)
        for message in self._flight.start(job, access):
            self.add("engine" if message.startswith("the engine") else "order", job.index, message)
        if self._seals is not None:
            self._sealed(job, self._seals)
        if job.tasks:
            self._carried(job)
        if access.problems:
            return
        self._in_buffers(job, access)
        if type(job.start) is StartDma:
            for message in self._memory.transfer(job.start, access.region):
                self.add("bounds", job.index, message)
        else:
            self._run_slice(job, access)

    def _sealed(self, job: Job, seals: JobSeals) -> None:
        if job.index >= len(self.program.jobs):
            return
        if seals.of(job.start, job.code) != self.program.jobs[job.index].seal:
            self.add("seal", job.index, "it is not the job that was declared here")

    def _carried(self, job: Job) -> None:
        """Follow the partial sums in the PRAM of the job's slice."""
        sums = self._sums[job.slice_index]
        for number, task in enumerate(job.tasks):
            for message in sums.task(task):
                self.add("partial", job.index, f"task {number}: {message}")

    def _in_buffers(self, job: Job, access: JobAccess) -> None:
        """Hold a job to its declared buffers; fetches of blocks have none, they are checked by ``Memory``."""
        fetch = access.region is not None and access.region.kind == "nss"
        if self._tenancies is None or fetch or job.index >= len(self.program.jobs):
            return
        info = self.program.jobs[job.index]
        for message in self._tenancies.problems(job, info, access):
            self.add("buffer", job.index, message)
        self._tenancies.begin(info, self._memory)

    def _access(self, job: Job) -> JobAccess:
        if type(job.start) is StartDma:
            return transfer_access(job.start, self.program.config, self._xram)
        access = self._slices.access(job.start, job.tasks, job.code)
        if job.slice_index >= self.program.config.slices:
            return access.refused("engine", f"slice {job.slice_index} of {self.program.config.slices}")
        return access

    def _run_slice(self, job: Job, access: JobAccess) -> None:
        start, end = access.code
        if not self._memory.holds(start, end, CODE):
            self.add("program", job.index, "its slice program was not delivered whole, or was overwritten")
        for task in access.tasks:
            for agent, read in task.reads:
                bad = self._memory.first_not(read, DATA)
                if bad is not None:
                    self.add("undefined", job.index, f"{agent.name} reads LRAM byte {bad:#x}, never written as data")
            if task.writes is not None:
                self._memory.define(task.writes)
