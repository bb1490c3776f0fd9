"""What one job touches, and the rules it breaks whatever runs beside it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.footprint import (
    TaskFootprint,
    form_of,
    loop_strides,
    operand_reads,
    task_footprint,
    transfer_xram,
    transfer_xram_bounds,
    without_bases,
)
from torq_byoc.npu_model.isa import DMA_IN, Agent, DmaDescriptor, Ndl, Role, SliceTask, StartDma, StartSlice
from torq_byoc.npu_model.limits import task_problems, transfer_problems
from torq_byoc.npu_model.touched import NOTHING, Placed, Touched
from torq_byoc.npu_model.xram import Region, XramMap

_TABLE_BYTES = 4


class TaskAccess(msgspec.Struct, frozen=True, eq=False):
    """LRAM bytes of one slice task.

    Attributes:
        reads: what each agent reads that reads anything.
        writes: what DEQW writes, if anything.
        repeats: whether a byte is written twice.
    """

    reads: tuple[tuple[Agent, Placed], ...]
    writes: Placed | None
    repeats: bool

    @classmethod
    def of(cls, footprint: TaskFootprint) -> TaskAccess:
        """That of a task with a known footprint."""
        reads = tuple([(agent, Placed.of(read)) for agent, read in footprint.operands.items() if len(read)])
        writes = Placed.of(footprint.writes) if len(footprint.writes) else None
        return cls(reads, writes, footprint.written_bytes != footprint.distinct_bytes)

    def moved(self, task: SliceTask) -> TaskAccess:
        """That of a task, given that of the same task ``without_bases``."""
        bases = {ndl.agent: ndl.base for ndl in task.ndls}
        reads = tuple([(agent, read.moved(bases[agent])) for agent, read in self.reads])
        writes = self.writes.moved(bases[Agent.DEQW]) if self.writes is not None else None
        return TaskAccess(reads, writes, self.repeats)


class JobAccess(msgspec.Struct, frozen=True, eq=False):
    """Bytes a job reads and writes, and the rules it breaks by itself as (rule, message).

    ``region`` is the XRAM region of a transfer and ``outside`` the span around its bytes there; ``tasks`` are those of
    a slice job in order and ``code`` the LRAM bytes of its program.  XRAM bytes that are read or written are given only
    where something can write them.
    """

    problems: tuple[tuple[str, str], ...] = ()
    lram_reads: Touched = NOTHING
    lram_writes: Touched = NOTHING
    xram_reads: Touched = NOTHING
    xram_writes: Touched = NOTHING
    region: Region | None = None
    outside: Touched = NOTHING
    tasks: tuple[TaskAccess, ...] = ()
    code: tuple[int, int] = (0, 0)

    def refused(self, rule: str, message: str) -> JobAccess:
        """The same job with one more broken rule."""
        return replace(self, problems=(*self.problems, (rule, message)))


def transfer_access(start: StartDma, config: NpuConfig, xram: XramMap) -> JobAccess:
    """What a transfer touches."""
    descriptor = start.descriptor
    limits = transfer_problems(descriptor, config)
    if limits:
        return JobAccess(tuple([("limit", text) for text in limits]))
    problems: list[tuple[str, str]] = []
    low, high = descriptor.lram, descriptor.lram + descriptor.nbytes
    incoming = start.engine is DMA_IN
    first, end = transfer_xram_bounds(descriptor)
    region = xram.around(first, end)
    if region is None:
        problems.append(("bounds", f"XRAM bytes {first:#x}..{end:#x} are not inside one region"))
    elif not incoming and not region.writable:
        problems.append(("bounds", f"writes {region.kind} {region.name!r}, which is read-only"))
    if region and incoming and region.kind == "nss":
        problems += _slot_problems(low, high, config)
    elif not _in_lram(low, high, config):
        problems.append(_beyond_lram("LRAM", low, high, config))
    if problems or region is None:
        return JobAccess(tuple(problems))
    lram, outside = Touched.all_of(low, high), Touched.all_of(first, end)
    if not region.writable:
        return JobAccess(lram_writes=lram, region=region, outside=outside)
    walked, repeats = _walk(descriptor.run, descriptor.dims)
    touched = Touched.joined([walked.moved(descriptor.xram)])
    if incoming:
        return JobAccess(lram_writes=lram, xram_reads=touched, region=region, outside=outside)
    access = JobAccess(lram_reads=lram, xram_writes=touched, region=region, outside=outside)
    return access.refused("order", "the transfer writes an XRAM byte twice") if repeats else access


@lru_cache(maxsize=256)
def _walk(run: int, dims: tuple[tuple[int, int], ...]) -> tuple[Placed, bool]:
    """The bytes of a transfer from XRAM byte 0 on, and whether it comes to one of them twice: those of the tiles of a
    tensor are alike."""
    descriptor = DmaDescriptor(0, 0, run, dims)
    runs = transfer_xram(descriptor)
    return Placed.of(runs), intervals.size(runs) != descriptor.nbytes


@dataclass(frozen=True, eq=False)
class _Form:
    """What tasks have in common that differ in nothing but the bases of their operands.

    Attributes:
        limits: that they break as long as the bases fit their fields.
        access: with all operands at address 0, of one that breaks no limit.
        excess: why that is not known.
    """

    limits: list[str]
    access: TaskAccess | None = None
    excess: str = ""

    @classmethod
    def of(cls, task: SliceTask, config: NpuConfig) -> _Form:
        """That of a task with all its operands at address 0."""
        limits = task_problems(task, config)
        if limits:
            return cls(limits)
        try:
            return cls([], TaskAccess.of(task_footprint(task)))
        except ValueError as error:
            return cls([], excess=str(error))


@dataclass(frozen=True, eq=False)
class _Checked:
    """What a task of a program touches, and the rules that it breaks wherever that program lies.

    Attributes:
        access: None for a task that breaks limits: nothing is known of it then.
        at_once, later: broken rules, those about the task's own program standing between the two.
    """

    access: TaskAccess | None
    at_once: list[tuple[str, str]]
    later: list[tuple[str, str]]


class SliceJobs:
    """What slice jobs touch, with what they have in common worked out once.

    A program that comes back is known by its bytes, one at its old place altogether.  Tasks of which only the bases of
    their operands differ, such as those of the tiles of a node, break the same limits and touch the same bytes further
    on.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        self._base_limit = 1 << config.limits.address_bits
        self._known: dict[tuple[int, bytes], JobAccess] = {}
        self._checked: dict[bytes, Sequence[_Checked]] = {}
        self._forms: dict[Hashable, _Form] = {}

    def access(self, start: StartSlice, tasks: tuple[SliceTask, ...], code: bytes) -> JobAccess:
        """What a slice job touches, its program included."""
        key = (start.address, code)
        if key not in self._known:
            self._known[key] = self._found(start, tasks, code)
        return self._known[key]

    def _found(self, start: StartSlice, tasks: tuple[SliceTask, ...], code: bytes) -> JobAccess:
        low, high = start.address, start.address + start.size
        problems = [] if _in_lram(low, high, self._config) else [_beyond_lram("its program", low, high, self._config)]
        tables = sum([len(task.table) * _TABLE_BYTES for task in tasks if task.table])
        most = self._config.slice_program_bytes
        if len(code) - tables > most:
            text = f"a slice program of {len(code) - tables} bytes beside its tables, at most {most}"
            problems.append(("limit", text))
        own = Placed.of(intervals.interval(low, high))
        found: list[TaskAccess] = []
        for number, checked in enumerate(self._tasks(tasks, code)):
            problems += checked.at_once
            if checked.access is not None:
                found.append(checked.access)
                writes = checked.access.writes
                if writes is not None and writes.first_common(own):
                    problems.append(("program", f"task {number} overwrites its own slice program"))
            problems += checked.later
        return JobAccess(
            tuple(problems),
            lram_reads=Touched.joined([own, *[read for access in found for _, read in access.reads]]),
            lram_writes=Touched.joined([access.writes for access in found if access.writes is not None]),
            tasks=tuple(found),
            code=(low, high),
        )

    def _tasks(self, tasks: tuple[SliceTask, ...], code: bytes) -> Sequence[_Checked]:
        """The tasks of a program, wherever that lies."""
        known = self._checked.get(code)
        if known is None:
            known = self._checked[code] = [self._task(number, task) for number, task in enumerate(tasks)]
        return known

    def _task(self, number: int, task: SliceTask) -> _Checked:
        form = self._form(task)
        limits = form.limits
        bases = [ndl.base for ndl in task.ndls]
        if bases and not 0 <= min(bases) <= max(bases) < self._base_limit:
            limits = task_problems(task, self._config)
        if limits:
            return _Checked(None, [("limit", f"task {number}: {text}") for text in limits], [])
        if form.access is None:
            return _Checked(None, [("bounds", f"task {number}: {form.excess}")], [])
        access = form.access.moved(task)
        at_once = list(_bounds_problems(number, access, self._config))
        return _Checked(access, at_once, list(_order_problems(number, task, access)))

    def _form(self, task: SliceTask) -> _Form:
        key = form_of(task)
        if key not in self._forms:
            self._forms[key] = _Form.of(without_bases(task), self._config)
        return self._forms[key]


def _bounds_problems(number: int, access: TaskAccess, config: NpuConfig) -> Iterator[tuple[str, str]]:
    """Bytes that a task must not touch or touches too often."""
    writes = access.writes
    for agent, touched in (*access.reads, *([(Agent.DEQW, writes)] if writes is not None else ())):
        if not _in_lram(touched.low, touched.high, config):
            yield _beyond_lram(f"task {number}: {agent.name}", touched.low, touched.high, config)
    if writes is not None and access.repeats:
        yield "order", f"task {number} writes an LRAM byte twice"


def _order_problems(number: int, task: SliceTask, access: TaskAccess) -> Iterator[tuple[str, str]]:
    """Bytes that a task reads and writes in no certain order."""
    writes = access.writes
    if writes is None:
        return
    for agent, read in access.reads:
        shared = writes.first_common(read)
        if shared and not _element_for_element(task, agent, writes):
            yield "order", f"task {number} writes LRAM byte {shared[0]:#x} that its {agent.name} reads"


def _element_for_element(task: SliceTask, agent: Agent, writes: Placed) -> bool:
    """Whether an operand is overwritten in place: every result replaces the very element it is made from.

    An operand folded over one reduce loop may have one of its terms in the result's place; the other terms
    must not touch the results.  Each block of lanes is read before it is written, however often, so this is safe.
    """
    read, result = task.ndl(agent), task.ndl(Agent.DEQW)
    if not read or not result or task.plane or task.window or agent is Agent.DEBR:
        return False
    walked = {dim.loop for dim in read.dims if dim.stride}
    folded = [i for i, loop in enumerate(task.loops) if loop.role is Role.REDUCE and loop.extent > 1 and i in walked]
    if len(folded) > 1 or read.dtype.size != result.dtype.size:
        return False
    if not folded:
        return _same_walk(task, read, result)
    stride, loop = read.loop_stride(folded[0]), task.loops[folded[0]]
    dims = tuple(dim for dim in read.dims if dim.loop != folded[0])
    terms = [replace(read, base=read.base + index * stride, dims=dims) for index in range(loop.extent)]
    aligned = [term for term in terms if _same_walk(task, term, result)]
    others = [term for term in terms if term not in aligned]
    written = writes.exact
    return len(aligned) == 1 and not any(intervals.first_common(written, operand_reads(task, term)) for term in others)


def _same_walk(task: SliceTask, read: Ndl, result: Ndl) -> bool:
    if read.base != result.base:
        return False
    left, right = (loop_strides(ndl, len(task.loops)) for ndl in (read, result))
    kept = (loop.extent > 1 and loop.role is not Role.REDUCE for loop in task.loops)
    return all(a == b or not moves for a, b, moves in zip(left, right, kept, strict=True))


def _in_lram(low: int, high: int, config: NpuConfig) -> bool:
    """Whether bytes lie where buffers may."""
    return config.lram_reserve <= low and high <= config.lram_bytes


def _beyond_lram(what: str, low: int, high: int, config: NpuConfig) -> tuple[str, str]:
    usable = f"{config.lram_reserve:#x}..{config.lram_bytes:#x}"
    return "bounds", f"{what}: LRAM bytes {low:#x}..{high:#x}, usable {usable}"


def _slot_problems(start: int, end: int, config: NpuConfig) -> Iterator[tuple[str, str]]:
    size = config.nss_block_bytes
    if not any(slot * size <= start and end <= (slot + 1) * size for slot in (0, 1)):
        yield "bounds", f"a block fetch to LRAM bytes {start:#x}..{end:#x}, outside the slots of {size} bytes"
