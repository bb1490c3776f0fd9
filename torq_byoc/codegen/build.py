"""From a graph and its schedule to torq_hl, in the plainest correct order: tile by tile, every operand loaded where
it is used, by each slice that needs it, and every result stored where it is made.  The passes improve on that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from torq_byoc.codegen.hl import (
    ALONE,
    READ,
    WRITE,
    Access,
    Buffer,
    BufferKind,
    CallOp,
    CallProgram,
    Invocation,
    Load,
    PlacedConstant,
    PlacedOperand,
    SliceCall,
    Space,
    Store,
    Transfer,
)
from torq_byoc.codegen.tile_places import absent_place, fill, place_bytes, tile_place, xram_strides
from torq_byoc.codegen.transfers import dense_transfers
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.kernels.kernel import Kernel, Layout, PackedConstant, Region, kernel_for
from torq_byoc.kernels.portion import region_of
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.timing import dma_cycles
from torq_byoc.schedules.fusion.group import FusedGroup
from torq_byoc.schedules.scheduled import NodeSchedule, Schedule
from torq_byoc.schedules.tiles import Tile

T = TypeVar("T")


def build(graph: OpGraph, schedule: Schedule, config: NpuConfig) -> CallProgram:
    """Lower a scheduled graph to torq_hl.

    Args:
        graph: operators in topological order.
        schedule: tiles, slice parts and bands.
        config: the machine.

    Returns:
        Ops in execution order; no address is chosen yet, and kernel calls are not yet programs.
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
    copies: tuple[tuple[int, tuple[int, ...]], ...]


class Granules(msgspec.Struct, frozen=True, gc=False):
    """Granules [first, first + count) of a constant."""

    first: int
    count: int


@dataclass(frozen=True)
class _Incoming:
    """A box of a tensor on its way in.

    Attributes:
        place: where it lies in its buffer, which has no number yet.
        nbytes: of that buffer.
        transfers: what brings it there, each with its cycles.
        read: the part of the tensor that they read (``tile_places.fill``).
    """

    place: PlacedOperand
    nbytes: int
    transfers: tuple[tuple[Transfer, int], ...]
    read: Region | None


class _Builder:
    def __init__(self, graph: OpGraph, schedule: Schedule, config: NpuConfig) -> None:
        self.graph, self.schedule, self.config = graph, schedule, config
        self.roots, self.orders = graph.storage_roots(), graph.reordered()
        self.buffers: list[Buffer] = []
        self.ops: list[CallOp] = []
        self.step = 0
        self.band = ALONE
        self.bands = 0
        self.tiles: Counter[str] = Counter()
        self.xram: dict[str, int] = {}
        self.incoming: dict[tuple[str, Layout, Region], _Incoming] = {}
        self.results: dict[tuple[str, tuple[int, ...]], tuple[PlacedOperand, int]] = {}
        """The place of a tensor's tiles of one extent, and the bytes of their buffers."""

    def program(self) -> CallProgram:
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
        tensors = {name: self.xram[root] for name, root in self.roots.items() if root in self.xram}
        return CallProgram(tuple(self.buffers), tuple(self.ops), tensors)

    def _declare_bindings(self) -> None:
        for name in self.graph.inputs:
            self._xram_tensor(name, BufferKind.INPUT)
        for name in self.graph.outputs:
            if self.roots[name] not in self.xram:
                self._xram_tensor(self.roots[name], BufferKind.OUTPUT)

    def _new_buffer(
        self, name: str, space: Space, nbytes: int, kind: BufferKind, content: np.ndarray | None = None
    ) -> int:
        index = len(self.buffers)
        self.buffers.append(Buffer(index, name, space, nbytes, kind, content))
        return index

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
            self._tile(context, tile)

    def _group(self, group: FusedGroup, nodes: Sequence[Node]) -> None:
        """Band by band, every op marked with its band."""
        contexts = [self._context(node) for node in nodes]
        for band in group.bands:
            self.band, self.bands = self.bands, self.bands + 1
            for position, tile in band.steps:
                self._tile(contexts[position], tile)
        self.band = ALONE

    def _context(self, node: Node) -> _NodeContext:
        kernel = kernel_for(node.op)
        positions = kernel.tensor_inputs(self.graph, node)
        constants = kernel.constants(self.graph, node, self.config.using(self._slices(node)))
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
            tuple(kernel.copied(self.graph, node).items()),
        )

    def _slices(self, node: Node) -> int | None:
        """How many slices a node may use; None for all."""
        return self.schedule.record.slices.get(node.name)

    def _tile(self, context: _NodeContext, tile: Tile) -> None:
        """Loads, kernel calls of the slices, store."""
        node = context.node
        info = self.graph.tensors[node.output]
        writes = tile.portion is None or tile.portion.last
        output = self._result(node, tile.output) if writes else absent_place(info.shape, info.dtype, tile.output)
        reads = [self._reads(context, part, tile) for part in tile.parts]
        inputs = [self._inputs(context, which, tile, reads) for which in range(len(context.tensor_inputs))]
        needed = [[needed_granules(constant, part) for part in tile.parts] for constant in context.constants]
        constants = [self._constants(context, which, tile, own) for which, own in enumerate(needed)]
        slices, number = self._slices(node), self.tiles[node.name]
        copies = context.copies if tile.portion is None else ()
        for index, part in enumerate(tile.parts):
            invocation = Invocation(
                node.name,
                part,
                output,
                tuple([operand[index] for operand in inputs]),
                tuple([constant[index] for constant in constants]),
                tile.portion,
                tuple([region.start for region in reads[index]]),
                tuple([own[index].first for own in needed]),
                slices,
            )
            operands = self._operands(context, invocation, reads[index])
            self.ops.append(SliceCall(node.name, number, self.step, self.band, index, invocation, operands, copies))
        if writes:
            self._store(node, tile.output, output)
        self.step += 1
        self.tiles[node.name] += 1

    def _reads(self, context: _NodeContext, part: Region, tile: Tile) -> list[Region]:
        """What one slice reads of every tensor input."""
        return [
            region_of(context.kernel, self.graph, context.node, position, part, tile.portion)
            for position in context.tensor_inputs
        ]

    def _inputs(
        self, context: _NodeContext, which: int, tile: Tile, reads: Sequence[Sequence[Region]]
    ) -> list[PlacedOperand]:
        """A tensor input for every slice."""
        region = tile.inputs[which]
        return _for_slices([own[which] == region for own in reads], lambda: self._input(context, which, region))

    def _input(self, context: _NodeContext, which: int, region: Region) -> PlacedOperand:
        node = context.node
        name = node.inputs[context.tensor_inputs[which]]
        if 0 in region.extent:
            info = self.graph.tensors[name]
            return absent_place(info.shape, info.dtype, region)
        box = self._box(name, context.layouts[which], region)
        buffer = self._new_buffer(f"{node.name}/{name}", Space.LRAM, box.nbytes, BufferKind.ACTIVATION)
        source = Access(self._xram_tensor(self.roots[name]), READ, name, box.read)
        self._loads(node, source, buffer, box.transfers)
        return msgspec.structs.replace(box.place, buffer=buffer)

    def _box(self, name: str, layout: Layout, region: Region) -> _Incoming:
        """A box of a tensor; slices and tiles ask for the same ones again."""
        key = (name, layout, region)
        box = self.incoming.get(key)
        if box is None:
            info = self.graph.tensors[name]
            place = tile_place(-1, info.shape, info.dtype, region, layout, self.orders.get(name, ()))
            transfers, read = fill(place, self.config)
            box = self.incoming[key] = _Incoming(place, place_bytes(place), self._timed(transfers), read)
        return box

    def _timed(self, transfers: Sequence[Transfer]) -> tuple[tuple[Transfer, int], ...]:
        return tuple([(transfer, dma_cycles(transfer.nbytes, self.config)) for transfer in transfers])

    def _result(self, node: Node, region: Region) -> PlacedOperand:
        """A buffer for a tile of a node's output."""
        key = (node.output, region.extent)
        known = self.results.get(key)
        if known is None:
            info = self.graph.tensors[node.output]
            place = tile_place(-1, info.shape, info.dtype, region, order=self.orders.get(node.output, ()))
            known = self.results[key] = (place, place_bytes(place))
        place, nbytes = known
        buffer = self._new_buffer(f"{node.name}/out", Space.LRAM, nbytes, BufferKind.ACTIVATION)
        return msgspec.structs.replace(place, buffer=buffer, region=region)

    def _constants(
        self, context: _NodeContext, which: int, tile: Tile, needed: Sequence[Granules]
    ) -> list[PlacedConstant]:
        """A packed constant for every slice, given what each needs of it."""
        granules = needed_granules(context.constants[which], tile.packed or tile.output)
        return _for_slices([own == granules for own in needed], lambda: self._constant(context, which, tile, granules))

    def _constant(self, context: _NodeContext, which: int, tile: Tile, granules: Granules) -> PlacedConstant:
        """Granules of a constant, or of each the pieces that belong to the tile's portion."""
        constant = context.constants[which]
        granule_bytes = constant.data.shape[1]
        offset, nbytes = granules.first * granule_bytes, granule_bytes
        if tile.portion is not None and constant.pieces > 1:
            piece = granule_bytes // constant.pieces
            offset += tile.portion.box.start[0] * piece
            nbytes = tile.portion.box.extent[0] * piece
        count = granules.count
        name = f"{context.node.name}/{constant.name}"
        target = self._new_buffer(name, Space.LRAM, count * nbytes, BufferKind.WEIGHTS)
        source = Access(context.constant_buffers[which], READ)
        whole = Transfer(0, offset, count * nbytes)
        pieces = Transfer(0, offset, nbytes, ((count, granule_bytes),))
        transfer = whole if count == 1 or nbytes == granule_bytes else pieces
        self._loads(context.node, source, target, self._timed([transfer]))
        return PlacedConstant(target, granules.first, count, nbytes)

    def _loads(self, node: Node, source: Access, target: int, transfers: Sequence[tuple[Transfer, int]]) -> None:
        write, tile = Access(target, WRITE), self.tiles[node.name]
        for transfer, cycles in transfers:
            self.ops.append(Load(node.name, tile, self.step, self.band, source, write, transfer, cycles))

    def _store(self, node: Node, region: Region, output: PlacedOperand) -> None:
        source = Access(output.buffer, READ, node.output, region)
        target = Access(self._xram_tensor(self.roots[node.output]), WRITE, node.output, region)
        for transfer, cycles in self._timed(
            dense_transfers(xram_strides(output), region, output.dtype.size, self.config)
        ):
            self.ops.append(Store(node.name, self.step, self.band, source, target, transfer, cycles))

    def _operands(self, context: _NodeContext, invocation: Invocation, reads: Sequence[Region]) -> tuple[Access, ...]:
        """What a kernel call reads and writes."""
        node = context.node
        accesses = []
        if invocation.output.buffer >= 0:
            accesses.append(Access(invocation.output.buffer, WRITE, node.output, invocation.region))
        for position, operand, region in zip(context.tensor_inputs, invocation.inputs, reads, strict=True):
            if operand.buffer < 0 or 0 in region.extent:
                continue
            if context.kernel.reads_whole_rows:
                region = Region((*region.start[:-1], 0), (*region.extent[:-1], operand.shape[-1]))
            accesses.append(Access(operand.buffer, READ, node.inputs[position], region))
        accesses += [Access(constant.buffer, READ) for constant in invocation.constants]
        return tuple(accesses)


def needed_granules(constant: PackedConstant, output: Region) -> Granules:
    """The granules of a constant that a box of the output needs."""
    if constant.axis is None:
        return Granules(0, constant.data.shape[0])
    start, extent = output.start[constant.axis], output.extent[constant.axis]
    first = start // constant.step
    return Granules(first, -(-(start + extent) // constant.step) - first)


def _for_slices(whole: Sequence[bool], load: Callable[[], T]) -> list[T]:
    """An operand for every slice: loaded for each one that needs the whole of it; those that need a part share one."""
    shared = None if all(whole) else load()
    return [load() if own or shared is None else shared for own in whole]
