"""torq_hl with addresses to the machine program: encoded slice programs, descriptors, NSS blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torq_byoc.codegen.declare import declare
from torq_byoc.codegen.dependencies import Dependencies, start_times, with_reused_xram
from torq_byoc.codegen.hl import Buffer, Load, Op, RunProgram, SliceRun
from torq_byoc.codegen.memory import MemoryMap
from torq_byoc.codegen.sequence import FETCH, SequencedBlock, sequence
from torq_byoc.codegen.share_programs import Images
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.encoding import encode_nss, nss_bytes
from torq_byoc.npu_model.isa import DMA_IN, DMA_OUT, DmaDescriptor, NssTask, Start, StartDma, StartSlice
from torq_byoc.npu_model.program import Binding, NssBlock, Program, Segment
from torq_byoc.npu_model.provenance import program_seal


@dataclass(frozen=True, eq=False)
class Lowered:
    """A machine program, and the op behind every start in program order; None for the fetch of a sequencer block."""

    program: Program
    jobs: tuple[Op | None, ...]


def lower(
    program: RunProgram,
    memory: MemoryMap,
    order_needs: Dependencies,
    images: Images,
    graph: OpGraph,
    config: NpuConfig,
) -> Lowered:
    """Assemble the machine program.

    Args:
        program: torq_hl in its final linear order.
        memory: address of every buffer.
        order_needs: what its ops depend on, but for tensors that share XRAM (``arrangements.order_dependencies``).
        images: the slice programs.
        graph: for bindings.
        config: the machine.
    """
    ops = program.ops
    needed = with_reused_xram(order_needs, program, memory.addresses)
    blocks = sequence(
        start_times(ops, needed),
        needed,
        [_start(op, memory.addresses.address) for op in ops],
        config,
    )
    placed = _place_blocks(blocks, memory.constants_end, config)
    declared = declare(program, memory.addresses, blocks, [tasks for _, tasks in placed], images)
    bindings = _bindings(program, memory, graph)
    machine = Program(
        config=config,
        segments=_segments(memory, images)
        + tuple(Segment(block.address, encode_nss(tasks), "nss") for block, tasks in placed),
        inputs=bindings[0],
        outputs=bindings[1],
        arena_address=memory.arena_address,
        arena_bytes=memory.arena_bytes,
        blocks=tuple(block for block, _ in placed),
        buffers=declared.buffers,
        jobs=declared.jobs,
        seal="",
    )
    jobs = tuple(ops[position] if position >= 0 else None for block in blocks for position in block.jobs)
    return Lowered(replace(machine, seal=program_seal(machine)), jobs)


def _start(op: Op, address: Mapping[int, int]) -> Start:
    if type(op) is SliceRun:
        return StartSlice(op.slice_index, address[op.program] + op.program_offset, op.program_bytes)
    inward = type(op) is Load
    lram, xram = (op.target, op.source) if inward else (op.source, op.target)
    descriptor = DmaDescriptor(
        address[lram.buffer] + op.transfer.lram_offset,
        address[xram.buffer] + op.transfer.xram_offset,
        op.transfer.run,
        op.transfer.dims,
    )
    return StartDma(DMA_IN if inward else DMA_OUT, descriptor)


def _place_blocks(
    blocks: Sequence[SequencedBlock], address: int, config: NpuConfig
) -> list[tuple[NssBlock, tuple[NssTask, ...]]]:
    """Give each block its XRAM address and each fetch its descriptor; sizes do not depend on either."""
    placed: list[NssBlock] = []
    for index, block in enumerate(blocks):
        size = nss_bytes(block.tasks)
        placed.append(NssBlock(address, size, index % 2))
        address = -(-(address + size) // config.xram_align) * config.xram_align
    result = []
    for index, block in enumerate(blocks):
        successor = placed[min(index + 1, len(placed) - 1)]
        fetch = StartDma(
            DMA_IN,
            DmaDescriptor(successor.slot * config.nss_block_bytes, successor.address, successor.size),
        )
        tasks = tuple([_with_fetch(task, fetch) for task in block.tasks])
        result.append((placed[index], tasks))
    return result


def _with_fetch(task: NssTask, fetch: StartDma) -> NssTask:
    """The task with the descriptor of the fetch, if it starts one."""
    for start in task.starts:
        if start is FETCH:
            return NssTask(tuple([fetch if one is FETCH else one for one in task.starts]), task.waits)
    return task


def _segments(memory: MemoryMap, images: Images) -> tuple[Segment, ...]:
    """One segment a kind: neighbouring constants are one image."""
    address, segments = memory.addresses.address, []
    for kind, members in memory.constants.items():
        if not members:
            continue
        end = base = address[members[0].index]
        parts: list[bytes | memoryview] = []
        for buffer in members:
            parts += [bytes(address[buffer.index] - end), _image(buffer, images)]
            end = address[buffer.index] + buffer.nbytes
        segments.append(Segment(base, b"".join(parts), kind.value))
    return tuple(segments)


def _image(buffer: Buffer, images: Images) -> bytes | memoryview:
    """The bytes of a constant buffer: what it holds from the start, or a program that was encoded."""
    return images.data[buffer.index] if buffer.content is None else buffer.content.data


def _bindings(
    program: RunProgram, memory: MemoryMap, graph: OpGraph
) -> tuple[tuple[Binding, ...], tuple[Binding, ...]]:
    roots = graph.storage_roots()
    address = memory.addresses.address

    def bind(name: str) -> Binding:
        info = graph.tensors[name]
        buffer = program.tensors[roots[name]]
        return Binding(name, info.shape, info.dtype, address[buffer], info.nbytes, info.scale, info.zero_point)

    return tuple(map(bind, graph.inputs)), tuple(map(bind, graph.outputs))
