"""Jobs in blocks: who waits for whom when the fetch of a block comes in between."""

from __future__ import annotations

from torq_byoc.codegen.dependencies import Dependencies
from torq_byoc.codegen.sequence import DMA_IN, sequence
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import DmaDescriptor, Engine, StartDma, StartSlice, WaitFor

SLICE = WaitFor(Engine.SLICE, 0)


def test_a_slice_waits_for_its_own_load_and_not_for_the_one_behind_the_next_fetch():
    """The first load fills block 0 together with short programs; block 1 fetches, starts a long load, and a program
    that needs the first load alone."""
    programs = 60
    engines = [DMA_IN, *[SLICE] * programs, DMA_IN, SLICE]
    times = list(range(len(engines)))
    needed = [{} for _ in engines]
    needed[-1] = {DMA_IN: 0}

    def command(position):
        if engines[position] == DMA_IN:
            return StartDma(Engine.DMA_IN, DmaDescriptor(0x1000, 0x100000 + position, 64))
        return StartSlice(0, 0x2000 + position, 64)

    commands = [command(position) for position in range(len(engines))]
    blocks = sequence(times, Dependencies(engines, needed), commands, NpuConfig())
    assert len(blocks) > 1
    tasks = [task for block in blocks for task in block.tasks]
    long, last = command(programs + 1), command(programs + 2)
    (begin,) = (index for index, task in enumerate(tasks) if long in task.starts)
    (end,) = (index for index, task in enumerate(tasks) if last in task.starts)
    assert all(DMA_IN not in task.waits for task in tasks[begin:end])
