"""What every job of an NPU program is meant to do, in terms of tensors and their regions.

A container says which layer a job works for, not which part of which tensor it moves or makes.  A compilation with the
container's own complete decision record gives the same program again, and with it the torq_hl op behind every job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from torq_byoc.codegen.hl import Op, SliceRun
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.rivals import fastest_candidate
from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.program import JobInfo, Program
from torq_byoc.schedules.record import DecisionRecord


@dataclass(frozen=True, eq=False)
class Intent:
    """A program as it is meant.

    Attributes:
        graph: what it computes.
        program: the program that says so.
        jobs: the op behind every start; None for the fetch of a sequencer block.
        address: byte address of every buffer of these ops, in its own memory.
    """

    graph: OpGraph
    program: Program
    jobs: tuple[Op | None, ...]
    address: Mapping[int, int]

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The graph's nodes by name."""
        return {node.name: node for node in self.graph.nodes}

    @cached_property
    def last_run(self) -> dict[int, int]:
        """By identity of a kernel call, the job that completes it."""
        return {id(op.invocation): job for job, op in enumerate(self.jobs) if isinstance(op, SliceRun)}


def intent_of(graph: OpGraph, decisions: DecisionRecord, options: Options) -> Intent:
    """Compile a graph once more, exactly as a record says.

    Args:
        graph: one partition.
        decisions: the complete record of its program.
        options: the request it was compiled for.

    Raises:
        TorqError: the record is not one of this graph.
    """
    again = replace(options, decisions=decisions, records=None, observe=None, progress=None)
    generated = fastest_candidate(graph, again, StageClock()).generated
    return Intent(graph, generated.program, generated.jobs, generated.addresses.address)


def layer_name(node: Node) -> str:
    """The node of the prepared model that an operator gives the result of."""
    return node.origin.rsplit("+", 1)[-1] or node.name


@dataclass(frozen=True, eq=False)
class Alignment:
    """Which meant job each job of a program is.

    Attributes:
        meant: for every job of the program the number of the meant one; None for one too many.
        absent: meant jobs that the program does not have.
    """

    meant: tuple[int | None, ...]
    absent: tuple[int, ...]


def align(intent: Intent, program: Program) -> Alignment | None:
    """Match the jobs of a program with those that were meant: both may have a stretch that the other one lacks.

    Returns:
        None when they have too little in common to be the same program.
    """
    wanted, found = ([_identity(job) for job in one.jobs] for one in (intent.program, program))
    front = _common(wanted, found)
    back = _common(wanted[: front - 1 if front else None : -1], found[: front - 1 if front else None : -1])
    if 2 * (front + back) < len(wanted):
        return None
    middle = min(len(wanted), len(found)) - front - back
    meant: list[int | None] = list(range(front))
    meant += [*range(front, front + middle), *([None] * (len(found) - front - back - middle))]
    meant += range(len(wanted) - back, len(wanted))
    return Alignment(tuple(meant), tuple(range(front + middle, len(wanted) - back)))


def _identity(job: JobInfo) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    return job.label, job.kind, job.reads, job.writes


def _common(left: list[tuple], right: list[tuple]) -> int:  # type: ignore[type-arg]
    """How many entries two lists share from their start."""
    pairs = zip(left, right, strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
