"""From a graph and its schedule to torq_hl, in the plainest correct order: tile by tile, every operand
loaded where it is used and every result stored where it is made.  The passes improve on that."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from torq_byoc.codegen.chunks import Chunk, program_chunks
from torq_byoc.codegen.hl import (
    Access,
    Addresses,
    Buffer,
    BufferKind,
    Effect,
    HlProgram,
    Invocation,
    Load,
    Op,
    PlacedConstant,
    PlacedOperand,
    SliceRun,
    Space,
    Store,
    Transfer,
)
from torq_byoc.codegen.transfers import dense_transfers, phased_extent, phased_transfers, row_major_strides
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph, TensorInfo
from torq_byoc.kernels.kernel import Kernel, Layout, PackedConstant, Region, kernel_for
from torq_byoc.kernels.portion import region_of, tasks_of
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.timing import dma_cycles
from torq_byoc.schedules.fusion.group import FusedGroup
from torq_byoc.schedules.plan import NodeSchedule, Schedule, Tile


def invocation_tasks(
    graph: OpGraph, node: Node, config: NpuConfig, invocation: Invocation, addresses: Addresses
) -> list[SliceTask]:
    """The slice tasks of one kernel call; ``addresses`` gives every buffer's LRAM byte address."""
    return tasks_of(
        kernel_for(node.op),
        graph,
        node,
        config,
        invocation.region,
        invocation.portion,
        invocation.output.at(addresses),
        [operand.at(addresses) for operand in invocation.inputs],
        [constant.at(addresses) for constant in invocation.constants],
    )


def build(graph: OpGraph, schedule: Schedule, config: NpuConfig) -> HlProgram:
    """Lower a scheduled graph to torq_hl.

    Args:
        graph: operators in topological order.
        schedule: tiles, slice parts and resident tensors.
        config: the machine.

    Returns:
        Ops in execution order; no address is chosen yet.
    """
    return _Builder(graph, schedule, config).program()


@dataclass(frozen=True)
class _NodeContext:
    """What all tiles of a node share."""

    node: Node
    kernel: Kernel
    tensor_inputs: tuple[int, ...]
    layouts: tuple[Layout, ...]
    constants: tuple[PackedConstant, ...]
    constant_buffers: tuple[int, ...]


@dataclass(frozen=True)
class _Held:
    """What a band of a fused group keeps in LRAM: regions by tensor, stride phases, and where each lies by now."""

    regions: Mapping[str, Region]
    phases: Mapping[str, tuple[int, int]]
    placed: dict[str, PlacedOperand] = field(default_factory=dict)


class _Builder:
    def __init__(self, graph: OpGraph, schedule: Schedule, config: NpuConfig) -> None:
        self.graph, self.schedule, self.config = graph, schedule, config
        self.roots, self.elements = graph.storage_roots(), graph.element_roots()
        self.resident_roots = {self.roots[name] for name in schedule.resident}
        self.buffers: list[Buffer] = []
        self.ops: list[Op] = []
        self.step = 0
        self.tiles: Counter[str] = Counter()
        self.xram: dict[str, int] = {}
        self.resident: dict[str, int] = {}

    def program(self) -> HlProgram:
        plans = {plan.node: plan for plan in self.schedule.nodes}
        groups = {name: group for group in self.schedule.groups for name in group.nodes}
        nodes = {node.name: node for node in self.graph.nodes}
        self._declare_bindings()
        for node in self.graph.nodes:
            if node.name in groups:
                if node.name == groups[node.name].nodes[0]:
                    self._group(groups[node.name], [nodes[name] for name in groups[node.name].nodes])
            elif node.op not in ALIAS_OPS:
                self._node(node, plans[node.name])
        return HlProgram(tuple(self.buffers), tuple(self.ops), self._tensor_buffers())

    def _tensor_buffers(self) -> Mapping[str, int]:
        return {name: self.xram[root] for name, root in self.roots.items() if root in self.xram}

    def _declare_bindings(self) -> None:
        for name in self.graph.inputs:
            self._xram_tensor(name, BufferKind.INPUT)
        for name in self.graph.outputs:
            if self.roots[name] not in self.xram:
                self._xram_tensor(self.roots[name], BufferKind.OUTPUT)

    def _new_buffer(
        self, name: str, space: Space, nbytes: int, kind: BufferKind, content: np.ndarray | None = None
    ) -> int:
        self.buffers.append(Buffer(len(self.buffers), name, space, nbytes, kind, content))
        return len(self.buffers) - 1

    def _xram_tensor(self, root: str, kind: BufferKind = BufferKind.ACTIVATION) -> int:
        """The XRAM buffer of a tensor; constants become read-only images."""
        if root not in self.xram:
            content = None
            if root in self.graph.constants:
                kind = BufferKind.WEIGHTS
                content = np.ascontiguousarray(self.graph.constants[root]).reshape(-1).view(np.uint8)
            nbytes = self.graph.tensors[root].nbytes
            self.xram[root] = self._new_buffer(root, Space.XRAM, nbytes, kind, content)
        return self.xram[root]

    def _node(self, node: Node, plan: NodeSchedule) -> None:
        context = self._context(node)
        for tile in plan.tiles:
            self._tile(context, tile, _Held({}, {}))

    def _group(self, group: FusedGroup, nodes: Sequence[Node]) -> None:
        """Band by band; what a band makes or loads lies in one place for all nodes that read it."""
        contexts = [self._context(node) for node in nodes]
        for band in group.bands:
            held = _Held(band.held, group.phases)
            for context, tile in zip(contexts, band.tiles, strict=True):
                if tile is not None:
                    self._tile(context, tile, held, stored=context.node.output not in group.kept)

    def _context(self, node: Node) -> _NodeContext:
        kernel = kernel_for(node.op)
        positions = kernel.tensor_inputs(self.graph, node)
        constants = kernel.constants(self.graph, node, self.config)
        return _NodeContext(
            node,
            kernel,
            positions,
            tuple(kernel.input_layout(self.graph, node, position) for position in positions),
            constants,
            tuple(
                self._new_buffer(
                    f"{node.name}/{c.name}", Space.XRAM, c.data.nbytes, BufferKind.WEIGHTS, c.data.reshape(-1)
                )
                for c in constants
            ),
        )

    def _tile(self, context: _NodeContext, tile: Tile, held: _Held, *, stored: bool = True) -> None:
        node = context.node
        operands = self._inputs(context, tile, held)
        constants = [self._constant(context, which, tile) for which in range(len(context.constants))]
        info = self.graph.tensors[node.output]
        root = self.roots[node.output]
        writes = tile.portion is None or tile.portion.last
        if not writes:
            output = _absent(info, tile.output)
        elif root in self.resident_roots:
            output = self._whole(info, self._resident_buffer(root))
        else:
            output = self._result(node, info, tile.output, held)
        invocations = [
            Invocation(node.name, part, output, tuple(operands), tuple(constants), tile.portion) for part in tile.parts
        ]
        self._run(context, invocations)
        if stored and writes and root not in self.resident_roots:
            self._store(node, info, tile.output, output.buffer)
        self.step += 1
        self.tiles[node.name] += 1

    def _result(self, node: Node, info: TensorInfo, region: Region, held: _Held) -> PlacedOperand:
        """Where a tile's result goes, in the layout of its readers when they are of the same group."""
        phases = held.phases.get(info.name, (1, 1))
        name = f"{node.name}/out"
        if phases == (1, 1):
            placed = self._dense_tile(name, info, region)
        else:
            placed = self._phased_tile(name, info, region, phases)
        if info.name in held.regions:
            held.placed[info.name] = placed
        return placed

    def _resident_buffer(self, root: str) -> int:
        if root not in self.resident:
            nbytes = self.graph.tensors[root].nbytes
            self.resident[root] = self._new_buffer(root, Space.LRAM, nbytes, BufferKind.ACTIVATION)
        return self.resident[root]

    def _whole(self, info: TensorInfo, buffer: int) -> PlacedOperand:
        strides = row_major_strides(info.shape, info.dtype.size)
        return PlacedOperand(buffer, 0, Region.whole(info.shape), strides, info.dtype)

    def _dense_tile(self, name: str, info: TensorInfo, region: Region) -> PlacedOperand:
        nbytes = region.size * info.dtype.size
        buffer = self._new_buffer(name, Space.LRAM, nbytes, BufferKind.ACTIVATION)
        return PlacedOperand(buffer, 0, region, row_major_strides(region.extent, info.dtype.size), info.dtype)

    def _inputs(self, context: _NodeContext, tile: Tile, held: _Held) -> list[PlacedOperand]:
        """Operands of a tile; one that reads the same part of the same tensor as another shares its place."""
        placed: dict[tuple[str, Region, Layout], PlacedOperand] = {}
        operands = []
        for which, region in enumerate(tile.inputs):
            name = context.node.inputs[context.tensor_inputs[which]]
            if self.elements[name] in held.regions and region.size:
                operands.append(self._held_input(context, which, name, held))
                continue
            key = (name, region, context.layouts[which])
            if key not in placed:
                placed[key] = self._input(context, which, region)
            operands.append(placed[key])
        return operands

    def _held_input(self, context: _NodeContext, which: int, name: str, held: _Held) -> PlacedOperand:
        """An operand that a band makes, or loads once for all its nodes, as the type that this one reads."""
        held_as = self.elements[name]
        if held_as not in held.placed:
            held.placed[held_as] = self._input(context, which, held.regions[held_as])
        return replace(held.placed[held_as], dtype=self.graph.tensors[name].dtype)

    def _input(self, context: _NodeContext, which: int, region: Region) -> PlacedOperand:
        node = context.node
        name = node.inputs[context.tensor_inputs[which]]
        info, root = self.graph.tensors[name], self.roots[name]
        if root in self.resident_roots:
            return self._whole(info, self._resident_buffer(root))
        if region.size == 0:
            return _absent(info, region)
        phases = context.layouts[which].phases
        if phases == (1, 1):
            placed = self._dense_tile(f"{node.name}/{name}", info, region)
            transfers = dense_transfers(info.shape, region, info.dtype.size, self.config)
        else:
            placed = self._phased_tile(f"{node.name}/{name}", info, region, phases)
            transfers = phased_transfers(info.shape, region, info.dtype.size, phases, self.config)
        dense = phases == (1, 1)
        exact = dense or all(extent % phase == 0 for extent, phase in zip(region.extent[-2:], phases, strict=True))
        read = region if exact else None
        source = Access(self._xram_tensor(root), Effect.READ, name, read)
        self._loads(node, source, placed.buffer, transfers)
        return placed

    def _phased_tile(self, name: str, info: TensorInfo, region: Region, phases: tuple[int, int]) -> PlacedOperand:
        rows, columns = phased_extent(region, phases)
        plane_shape = (*region.extent[:-2], rows, columns)
        phase_bytes = math.prod(plane_shape) * info.dtype.size
        nbytes = phase_bytes * phases[0] * phases[1]
        buffer = self._new_buffer(name, Space.LRAM, nbytes, BufferKind.ACTIVATION)
        strides = row_major_strides(plane_shape, info.dtype.size)
        return PlacedOperand(buffer, 0, region, strides, info.dtype, phases, (phase_bytes * phases[1], phase_bytes))

    def _constant(self, context: _NodeContext, which: int, tile: Tile) -> PlacedConstant:
        """Granules of a constant that a tile needs, or of each the pieces that belong to its portion."""
        constant = context.constants[which]
        granules, granule_bytes = constant.data.shape
        first, count = 0, granules
        if constant.axis is not None:
            start, extent = tile.output.start[constant.axis], tile.output.extent[constant.axis]
            first = start // constant.step
            count = math.ceil((start + extent) / constant.step) - first
        offset, nbytes = first * granule_bytes, granule_bytes
        if tile.portion is not None and constant.pieces > 1:
            piece = granule_bytes // constant.pieces
            offset += tile.portion.box.start[0] * piece
            nbytes = tile.portion.box.extent[0] * piece
        name = f"{context.node.name}/{constant.name}"
        target = self._new_buffer(name, Space.LRAM, count * nbytes, BufferKind.WEIGHTS)
        source = Access(context.constant_buffers[which], Effect.READ)
        whole = Transfer(0, offset, count * nbytes)
        pieces = Transfer(0, offset, nbytes, ((count, granule_bytes),))
        self._loads(context.node, source, target, [whole if count == 1 or nbytes == granule_bytes else pieces])
        return PlacedConstant(target, first, count, nbytes)

    def _loads(self, node: Node, source: Access, target: int, transfers: Sequence[Transfer]) -> None:
        for transfer in transfers:
            cycles = dma_cycles(transfer.nbytes, self.config)
            self.ops.append(
                Load(
                    node.name, self.tiles[node.name], self.step, source, Access(target, Effect.WRITE), transfer, cycles
                )
            )

    def _store(self, node: Node, info: TensorInfo, region: Region, buffer: int) -> None:
        source = Access(buffer, Effect.READ, info.name, region)
        target = Access(self._xram_tensor(self.roots[info.name]), Effect.WRITE, info.name, region)
        for transfer in dense_transfers(info.shape, region, info.dtype.size, self.config):
            cycles = dma_cycles(transfer.nbytes, self.config)
            self.ops.append(Store(node.name, self.step, source, target, transfer, cycles))

    def _run(self, context: _NodeContext, invocations: Sequence[Invocation]) -> None:
        """The slices' programs of one tile; a program too long for its slot is run in several steps.

        Sizes and cycles do not depend on addresses as long as operands do not overlap that will not.
        """
        cut = [
            program_chunks(
                invocation_tasks(self.graph, context.node, self.config, invocation, self._apart(invocation)),
                self.config.slice_program_bytes,
            )
            for invocation in invocations
        ]
        for position in range(max(map(len, cut))):
            if position:
                self.step += 1
            together = [
                (index, invocations[index], own[position]) for index, own in enumerate(cut) if position < len(own)
            ]
            self._run_together(context, together)

    def _apart(self, invocation: Invocation) -> dict[int, int]:
        """Addresses for the buffers of a kernel call, one behind the other."""
        addresses: dict[int, int] = {}
        cursor = 0
        placed: tuple[PlacedOperand | PlacedConstant, ...] = (
            invocation.output,
            *invocation.inputs,
            *invocation.constants,
        )
        for buffer in (operand.buffer for operand in placed):
            if buffer >= 0 and buffer not in addresses:
                addresses[buffer] = cursor
                cursor += -(-self.buffers[buffer].nbytes // self.config.lram_word) * self.config.lram_word
        return addresses

    def _run_together(self, context: _NodeContext, runs: Sequence[tuple[int, Invocation, Chunk]]) -> None:
        """One program buffer for all slices: their programs lie behind each other in it."""
        node = context.node
        total = sum(chunk.nbytes for _, _, chunk in runs)
        image = self._new_buffer(f"{node.name}/program", Space.XRAM, total, BufferKind.PROGRAM)
        program = self._new_buffer(f"{node.name}/program", Space.LRAM, total, BufferKind.PROGRAM)
        self._loads(node, Access(image, Effect.READ), program, [Transfer(0, 0, total)])
        offset = 0
        for index, invocation, chunk in runs:
            operands = self._operand_accesses(context, invocation)
            self.ops.append(
                SliceRun(
                    node.name,
                    self.step,
                    index,
                    invocation,
                    chunk.tasks,
                    program,
                    offset,
                    chunk.nbytes,
                    operands,
                    chunk.cycles,
                )
            )
            offset += chunk.nbytes

    def _operand_accesses(self, context: _NodeContext, invocation: Invocation) -> tuple[Access, ...]:
        node = context.node
        accesses = []
        if invocation.output.buffer >= 0:
            accesses.append(Access(invocation.output.buffer, Effect.WRITE, node.output, invocation.region))
        for position, operand in zip(context.tensor_inputs, invocation.inputs, strict=True):
            if operand.buffer < 0:
                continue
            name = node.inputs[position]
            region = region_of(context.kernel, self.graph, node, position, invocation.region, invocation.portion)
            if region.size:
                if context.kernel.reads_whole_rows:
                    region = Region((*region.start[:-1], 0), (*region.extent[:-1], self.graph.tensors[name].shape[-1]))
                accesses.append(Access(operand.buffer, Effect.READ, name, region))
        accesses += [Access(constant.buffer, Effect.READ) for constant in invocation.constants]
        return tuple(accesses)


def _absent(info: TensorInfo, region: Region) -> PlacedOperand:
    """An operand that a tile leaves out."""
    return PlacedOperand(-1, 0, region, row_major_strides(region.extent, info.dtype.size), info.dtype)
