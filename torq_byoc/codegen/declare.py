"""What the compiler meant: the declarations that the verifier holds the machine program to.

Buffers and their readers and writers come from torq_hl, where no operand has an address; seals come from
the starts and slice programs in the form in which they are emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.dependencies import AddressMap
from torq_byoc.codegen.hl import READ, BufferKind, Load, RunProgram, SliceRun, Space
from torq_byoc.codegen.sequence import SequencedBlock
from torq_byoc.codegen.share_programs import Images
from torq_byoc.npu_model.isa import NssTask
from torq_byoc.npu_model.program import DeclaredBuffer, JobInfo
from torq_byoc.npu_model.provenance import JobSeals

_KIND = {kind: kind.value for kind in BufferKind}
_SPACE = {Space.LRAM: "lram", Space.XRAM: "xram"}


@dataclass(frozen=True)
class Declarations:
    """The buffer and job tables of a program."""

    buffers: tuple[DeclaredBuffer, ...]
    jobs: tuple[JobInfo, ...]


def declare(
    program: RunProgram,
    addresses: AddressMap,
    blocks: Sequence[SequencedBlock],
    tasks: Sequence[Sequence[NssTask]],
    images: Images,
) -> Declarations:
    """Declare buffers in the order of their first use, and a job for every start, in program order.

    Args:
        program: torq_hl in its final order.
        addresses: where its buffers lie.
        blocks: the op of every start.
        tasks: the sequencer tasks of every block, all addresses known.
        images: the slice programs.
    """
    numbers: dict[int, int] = {}
    for op in program.ops:
        for access in op.accesses:
            if access.buffer not in numbers:
                numbers[access.buffer] = len(numbers)
    buffers = tuple(
        [
            DeclaredBuffer(
                _SPACE[program.buffers[index].space], addresses.address[index], program.buffers[index].nbytes
            )
            for index in numbers
        ]
    )
    seals = JobSeals()
    jobs = []
    for block, listed in zip(blocks, tasks, strict=True):
        starts = [start for task in listed for start in task.starts]
        for position, start in zip(block.jobs, starts, strict=True):
            if position < 0:
                jobs.append(JobInfo("", "nss", (), (), seals.of(start)))
                continue
            op = program.ops[position]
            if type(op) is SliceRun:
                own = images.of(op.program)[op.program_offset : op.program_offset + op.program_bytes]
                jobs.append(_slice_job(op, numbers, seals.of(start, own)))
            else:
                reads, writes = op.source.buffer, op.target.buffer
                kind = _KIND[program.buffers[writes if type(op) is Load else reads].kind]
                jobs.append(JobInfo(op.node, kind, (numbers[reads],), (numbers[writes],), seals.of(start)))
    return Declarations(buffers, tuple(jobs))


def _slice_job(op: SliceRun, numbers: Mapping[int, int], seal: str) -> JobInfo:
    reads: dict[int, None] = {}
    writes: dict[int, None] = {}
    for access in op.accesses:
        (reads if access.effect is READ else writes)[numbers[access.buffer]] = None
    return JobInfo(op.node, "slice", tuple(reads), tuple(writes), seal)
