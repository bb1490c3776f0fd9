"""Buffers in LRAM over time: who has which bytes from when to when.

A buffer that the program declares is there from the start of the first job that touches it to the end of the
last one; the verifier has proved that its jobs stay inside it and that no other buffer comes in between.  A
block of the sequencer's program is there from its fetch to the first start of the next block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torq_byoc.npu_model.isa import StartDma
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.timing import Timeline
from torq_byoc.npu_model.trace import trace
from torq_byoc.report.measure import Measurement
from torq_byoc.report.page.bars import SEQUENCER, job_layers

KINDS = ("weights", "activation", "result", "program", "sequencer")
"""What a buffer holds: constants, tensors brought in, what slices write, slice programs, sequencer blocks."""

_KINDS = {"weights": "weights", "program": "program", "slice": "result"}


@dataclass(frozen=True)
class Tenancy:
    """Bytes address .. address + nbytes - 1 of LRAM in cycles [start, end) of the common time line.

    Attributes:
        layer: number of the layer in ``report.layers.layer_rows`` whose job fills it, or SEQUENCER.
        kind: one of ``KINDS``.
        buffers: how many, one after the other.
    """

    layer: int
    kind: str
    address: int
    nbytes: int
    start: int
    end: int
    buffers: int = 1


def tenancies(measurement: Measurement) -> list[Tenancy]:
    """The tenancies of all partitions, by start and address."""
    found: list[Tenancy] = []
    offset = 0
    for (partition, timeline), layers in zip(measurement.parts(), job_layers(measurement), strict=True):
        found += _declared(partition.program, timeline, layers, offset)
        found += _blocks(partition.program, timeline, offset)
        offset += timeline.total_cycles
    return sorted(found, key=lambda tenancy: (tenancy.start, tenancy.address))


def _declared(program: Program, timeline: Timeline, layers: Sequence[int], offset: int) -> Iterator[Tenancy]:
    times: dict[int, tuple[int, int]] = {}
    filled: dict[int, tuple[int, str]] = {}
    for event in timeline.events:
        info = program.jobs[event.job]
        for number in (*info.reads, *info.writes):
            start, end = times.get(number, (event.start, event.end))
            times[number] = (min(start, event.start), max(end, event.end))
        for number in info.writes:
            filled.setdefault(number, (layers[event.job], _KINDS.get(info.kind, "activation")))
    for number, (start, end) in times.items():
        buffer = program.buffers[number]
        if buffer.space == "lram" and number in filled:
            layer, kind = filled[number]
            yield Tenancy(layer, kind, buffer.address, buffer.nbytes, offset + start, offset + end)


def _blocks(program: Program, timeline: Timeline, offset: int) -> Iterator[Tenancy]:
    starts = {event.job: event.start for event in timeline.events}
    fetched: dict[int, int] = {0: 0}
    begins: dict[int, int] = {}
    for step in trace(program):
        for job in step.jobs:
            start = starts[job.index]
            begins[step.block] = min(begins.get(step.block, start), start)
            if program.jobs[job.index].kind == "nss" and isinstance(job.start, StartDma):
                fetched.setdefault(_block_at(program, job.start.descriptor.xram), start)
    end = timeline.total_cycles
    for number, block in reversed(list(enumerate(program.blocks))):
        address = block.slot * program.config.nss_block_bytes
        yield Tenancy(SEQUENCER, "sequencer", address, block.size, offset + fetched[number], offset + end)
        end = begins.get(number, end)


def _block_at(program: Program, address: int) -> int:
    """The number of the block that lies at an XRAM address."""
    return next(n for n, block in enumerate(program.blocks) if block.address <= address < block.address + block.size)
