"""What the compiler meant: the declarations that the verifier holds the machine program to.

Buffers and their readers and writers come from torq_hl, where no operand has an address; seals come from
the starts and slice programs in the form in which they are emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.dependencies import AddressMap
from torq_byoc.codegen.hl import READ, BufferKind, Load, Op, RunProgram, SliceRun, Space
from torq_byoc.codegen.sequence import SequencedBlock
from torq_byoc.npu_model.isa import NssTask, Start
from torq_byoc.npu_model.program import DeclaredBuffer, JobInfo
from torq_byoc.npu_model.provenance import job_seal

_SPACE = {Space.LRAM: "lram", Space.XRAM: "xram"}


@dataclass(frozen=True)
class Declarations:
    """The buffer and job tables of a program."""

    buffers: tuple[DeclaredBuffer, ...]
    jobs: tuple[JobInfo, ...]


def program_sources(program: RunProgram) -> dict[int, int]:
    """The XRAM buffer from which every LRAM program buffer is loaded."""
    return {
        op.target.buffer: op.source.buffer
        for op in program.ops
        if type(op) is Load and program.buffers[op.target.buffer].kind is BufferKind.PROGRAM
    }


def declare(
    program: RunProgram,
    addresses: AddressMap,
    blocks: Sequence[SequencedBlock],
    tasks: Sequence[Sequence[NssTask]],
    code: Mapping[int, bytes],
) -> Declarations:
    """Declare buffers in the order of their first use, and a job for every start, in program order.

    Args:
        program: torq_hl in its final order.
        addresses: where its buffers lie.
        blocks: the op of every start.
        tasks: the sequencer tasks of every block, all addresses known.
        code: image of the XRAM program buffer behind every LRAM program buffer.
    """
    used = list(dict.fromkeys(access.buffer for op in program.ops for access in op.accesses))
    numbers = {index: number for number, index in enumerate(used)}
    buffers = tuple(
        DeclaredBuffer(_SPACE[program.buffers[index].space], addresses.address[index], program.buffers[index].nbytes)
        for index in used
    )
    jobs = []
    for block, listed in zip(blocks, tasks, strict=True):
        starts = [start for task in listed for start in task.starts]
        for position, start in zip(block.jobs, starts, strict=True):
            if position < 0:
                jobs.append(JobInfo("", "nss", (), (), job_seal(start)))
            else:
                jobs.append(_job(program, program.ops[position], start, numbers, code))
    return Declarations(buffers, tuple(jobs))


def _job(program: RunProgram, op: Op, start: Start, numbers: Mapping[int, int], code: Mapping[int, bytes]) -> JobInfo:
    reads: dict[int, None] = {}
    writes: dict[int, None] = {}
    for access in op.accesses:
        (reads if access.effect is READ else writes)[numbers[access.buffer]] = None
    if type(op) is SliceRun:
        kind = "slice"
        seal = job_seal(start, code[op.program][op.program_offset : op.program_offset + op.program_bytes])
    else:
        kind = program.buffers[(op.target if type(op) is Load else op.source).buffer].kind.value
        seal = job_seal(start)
    return JobInfo(op.node, kind, tuple(reads), tuple(writes), seal)
