"""Slice programs of bounded length: a kernel call with many tasks runs as several programs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torq_byoc.npu_model.encoding import encoded_size
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.timing import task_cycles


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Consecutive tasks of a kernel call that make one slice program."""

    tasks: tuple[int, int]
    nbytes: int
    cycles: int


def program_chunks(tasks: Sequence[SliceTask], limit: int) -> list[Chunk]:
    """Cut a task list into programs of at most ``limit`` bytes."""
    found: list[Chunk] = []
    for position, task in enumerate(tasks):
        size, cycles = encoded_size(task), task_cycles(task)
        last = found[-1] if found else None
        if last is not None and last.nbytes + size <= limit:
            found[-1] = Chunk((last.tasks[0], position + 1), last.nbytes + size, last.cycles + cycles)
        else:
            found.append(Chunk((position, position + 1), size, cycles))
    return found
