"""Runs a kernel on tiles placed in a small LRAM, the way generated code does, and puts the output together.

Every byte that nobody wrote is random and must not be read, and every byte outside the output tile must be left
as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import ALIAS_OPS, OpGraph, Rescale
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Placement, Region, kernel_for
from torq_byoc.kernels.limits import check_task
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.footprint import task_footprint
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.scalar import execute_task_scalar
from torq_byoc.npu_model.timing import task_cycles

CONFIG = NpuConfig()


@dataclass(frozen=True)
class Tile:
    """An output region that shares its operands in LRAM, and the parts that different slices compute."""

    region: Region
    parts: tuple[Region, ...]


def whole(shape: Sequence[int]) -> list[Tile]:
    """The whole tensor as one tile on one slice."""
    region = Region.whole(shape)
    return [Tile(region, (region,))]


def split(shape: Sequence[int], extents: Sequence[int], axis: int, step: int) -> list[Tile]:
    """Tiles of at most ``extents``, each cut along ``axis`` at about half, at a multiple of ``step``."""
    cuts = [range(0, size, extent) for size, extent in zip(shape, extents, strict=True)]
    tiles = []
    for start in itertools.product(*cuts):
        size = tuple(min(e, n - s) for e, n, s in zip(extents, shape, start, strict=True))
        region = Region(start, size)
        half = max(step, size[axis] // 2 // step * step)
        parts = [region]
        if half < size[axis]:
            parts = [_cut(region, axis, 0, half), _cut(region, axis, half, size[axis] - half)]
        tiles.append(Tile(region, tuple(parts)))
    return tiles


def _cut(region: Region, axis: int, offset: int, extent: int) -> Region:
    start, size = list(region.start), list(region.extent)
    start[axis] += offset
    size[axis] = extent
    return Region(tuple(start), tuple(size))


class Lram:
    """A byte array handed out from the bottom, filled with noise."""

    def __init__(self, rng: np.random.Generator, size: int = 1 << 17) -> None:
        self.bytes = rng.integers(0, 256, size, dtype=np.uint8)
        self.known = np.zeros(size, bool)
        self.top = 64

    def take(self, size: int) -> int:
        address = self.top
        self.top += (size + 7) // 8 * 8 + 8
        assert self.top < self.bytes.size, "test tile too large"
        return address

    def put(self, data: np.ndarray) -> int:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        address = self.take(raw.size)
        self.bytes[address : address + raw.size] = raw
        self.known[address : address + raw.size] = True
        return address

    def tile(self, region: Region, dtype: DType, phases: tuple[int, int] = (1, 1)) -> Placement:
        """Room for a tile, dense or as [py, px, ..., rows, columns]."""
        extent = list(region.extent)
        if phases != (1, 1):
            extent[-2:] = [-(-e // p) for e, p in zip(extent[-2:], phases, strict=True)]
        strides = [dtype.size] * len(extent)
        for axis in range(len(extent) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * extent[axis + 1]
        plane = strides[0] * extent[0]
        planes = (phases[1] * plane, plane) if phases != (1, 1) else (0, 0)
        address = self.take(plane * phases[0] * phases[1])
        return Placement(address, region, tuple(strides), dtype, phases, planes)

    def views(self, tile: Placement) -> list[tuple[tuple[slice, ...], np.ndarray]]:
        """For each stride phase: the part of the tile it holds, and the memory that holds it."""
        storage = np.dtype(np.uint16) if tile.dtype is DType.BF16 else tile.dtype.numpy
        found = []
        for py, px in itertools.product(range(tile.phases[0]), range(tile.phases[1])):
            part = [slice(None)] * len(tile.strides)
            if tile.phases != (1, 1):
                part[-2:] = [slice(py, None, tile.phases[0]), slice(px, None, tile.phases[1])]
            extent = tuple(len(range(e)[p]) for e, p in zip(tile.region.extent, part, strict=True))
            address = tile.address + py * tile.phase_strides[0] + px * tile.phase_strides[1]
            if min(extent):
                found.append((tuple(part), np.ndarray(extent, storage, self.bytes, address, tile.strides)))
        return found

    def write_tile(self, values: np.ndarray, tile: Placement) -> None:
        """Copy the tile's region of a whole tensor into LRAM."""
        box = values[tuple(slice(s, s + e) for s, e in zip(tile.region.start, tile.region.extent, strict=True))]
        for part, view in self.views(tile):
            chunk = box[part]
            view[...] = chunk.view(np.uint16) if tile.dtype is DType.BF16 else chunk
            for byte in range(tile.dtype.size):
                start = view.__array_interface__["data"][0] - self.bytes.__array_interface__["data"][0] + byte
                np.ndarray(view.shape, bool, self.known, start, view.strides)[...] = True

    def check_reads(self, task: SliceTask) -> None:
        """A task must read only bytes that somebody wrote."""
        for agent, runs in task_footprint(task).operands.items():
            for start, end in runs:
                assert self.known[start:end].all(), f"{agent.name} reads bytes in {start}..{end} that nobody wrote"

    def read_tile(self, tile: Placement) -> np.ndarray:
        """The tile as a dense array."""
        out = np.zeros(tile.region.extent, tile.dtype.numpy)
        for part, view in self.views(tile):
            out[part] = view.view(out.dtype) if tile.dtype is DType.BF16 else view
        return out


def place_constant(lram: Lram, constant: PackedConstant, region: Region) -> ConstantPlacement:
    """The granules that an output region needs, back to back."""
    first, count = 0, constant.data.shape[0]
    if constant.axis is not None:
        start, extent = region.start[constant.axis], region.extent[constant.axis]
        first = start // constant.step
        count = -(-(start + extent) // constant.step) - first
    assert first + count <= constant.data.shape[0], "the packed constant has too few granules"
    data = constant.data[first : first + count]
    return ConstantPlacement(lram.put(data), first, count, data.shape[1])


def run(
    graph: OpGraph,
    inputs: Sequence[np.ndarray],
    tiles: Sequence[Tile],
    *,
    execute: Callable[[SliceTask, np.ndarray], None] = execute_task,
    output_phases: tuple[int, int] = (1, 1),
    whole_inputs: bool = False,
    config: NpuConfig = CONFIG,
) -> np.ndarray:
    """Run the graph's only node tile by tile.

    Args:
        inputs: the tensor inputs' whole values, in ``tensor_inputs`` order.
        tiles: what to compute, in which parts.
        execute: the interpreter.
        output_phases: stride phases that the output tiles lie in.
        whole_inputs: every tile sees whole input tensors instead of just the regions it needs.

    Returns:
        The whole output.
    """
    node = graph.nodes[0]
    kernel, info = kernel_for(node.op), graph.tensors[node.output]
    result = np.zeros(info.shape, info.dtype.numpy)
    positions = kernel.tensor_inputs(graph, node)
    packed = kernel.constants(graph, node, config)
    rng = np.random.default_rng(7)
    for tile in tiles:
        lram = Lram(rng)
        placements = []
        for position, values in zip(positions, inputs, strict=True):
            region = kernel.input_region(graph, node, position, tile.region)
            if whole_inputs:
                region = Region.whole(values.shape)
            phases = kernel.input_layout(graph, node, position).phases
            assert all(s % p == 0 for s, p in zip(region.start[-2:], phases, strict=False))
            placement = lram.tile(region, DType.of(values.dtype), phases)
            lram.write_tile(values, placement)
            placements.append(placement)
        constants = [place_constant(lram, constant, tile.region) for constant in packed]
        output = lram.tile(tile.region, info.dtype, output_phases)
        before = lram.bytes.copy()
        for part in tile.parts:
            for task in kernel.tasks(graph, node, config, part, output, placements, constants):
                check_task(task, config)
                lram.check_reads(task)
                execute(task, lram.bytes)
        box = tuple(slice(s, s + e) for s, e in zip(tile.region.start, tile.region.extent, strict=True))
        result[box] = lram.read_tile(output)
        for _, view in lram.views(output):
            view[...] = 0
        after, lram.bytes = lram.bytes, before
        for _, view in lram.views(output):
            view[...] = 0
        assert np.array_equal(before, after), "a task wrote outside its output"
    return result


def run_scalar(graph: OpGraph, inputs: Sequence[np.ndarray], tiles: Sequence[Tile]) -> np.ndarray:
    """``run`` with the scalar interpreter."""
    return run(graph, inputs, tiles, execute=execute_task_scalar)


def node_cycles(graph: OpGraph, config: NpuConfig = CONFIG) -> int:
    """Slice cycles of the graph's only node, computed whole on one slice."""
    node = graph.nodes[0]
    kernel, info = kernel_for(node.op), graph.tensors[node.output]
    lram = Lram(np.random.default_rng(0), 1 << 23)
    region = Region.whole(info.shape)
    placements = []
    for position in kernel.tensor_inputs(graph, node):
        source = graph.tensors[node.inputs[position]]
        box = kernel.input_region(graph, node, position, region)
        placements.append(lram.tile(box, source.dtype, kernel.input_layout(graph, node, position).phases))
    constants = [place_constant(lram, constant, region) for constant in kernel.constants(graph, node, config)]
    output = lram.tile(region, info.dtype)
    tasks = kernel.tasks(graph, node, config, region, output, placements, constants)
    return sum(task_cycles(task) for task in tasks)


def graph_cycles(graph: OpGraph, config: NpuConfig = CONFIG) -> int:
    """Slice cycles of all nodes that move or compute, each computed whole on one slice."""
    parts = [
        OpGraph("part", node.inputs, (node.output,), graph.tensors, graph.constants, (node,))
        for node in graph.nodes
        if node.op not in ALIAS_OPS
    ]
    return sum(node_cycles(part, config) for part in parts)


def reference(graph: OpGraph, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The kernel's whole-tensor reference; ``inputs`` are all of the node's inputs."""
    node = graph.nodes[0]
    return kernel_for(node.op).reference(graph, node, inputs)


def one_node(
    op: str,
    inputs: Sequence[np.ndarray | tuple[tuple[int, ...], DType]],
    shape: Sequence[int],
    dtype: DType,
    attrs: dict[str, object] | None = None,
    rescale: Rescale | None = None,
) -> OpGraph:
    """A graph of one node; array inputs are constants, (shape, type) inputs are tensors."""
    builder = GraphBuilder("test")
    names = [
        builder.constant(value, f"c{i}") if isinstance(value, np.ndarray) else builder.input(f"x{i}", *value)
        for i, value in enumerate(inputs)
    ]
    builder.output(builder.emit(op, names, shape, dtype, attrs=attrs, rescale=rescale, origin="node"))
    return builder.finish()


def random_values(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> np.ndarray:
    """Awkward data: the whole range of the type, with outliers at its ends; floats over several magnitudes."""
    if dtype.is_float:
        values = rng.normal(size=shape) * 2.0 ** rng.integers(-3, 4, shape)
        return values.astype(dtype.numpy)
    low, high = dtype.integer_range
    values = rng.integers(low, high + 1, shape, dtype=np.int64)
    ends = rng.random(shape)
    values = np.where(ends < 0.05, low, np.where(ends > 0.95, high, values))
    return values.astype(dtype.numpy)


def random_rescale(rng: np.random.Generator, channels: int, axis: int | None, reach: float, dtype: DType) -> Rescale:
    """Per-channel bias and scale that spread sums of about ``reach`` over the output type."""
    if dtype.is_float:
        return Rescale(rng.normal(size=channels).astype(np.float32), axis=axis)
    span = dtype.integer_range[1]
    shift = int(rng.integers(30, 40))
    base = span / reach * 2.0**shift
    while base >= 2**30:
        shift, base = shift - 1, base / 2
    scale = (base * rng.uniform(0.3, 1.0, channels)).astype(np.int32)
    bias = np.clip(rng.normal(size=channels) * reach / 4, -(2**31), 2**31 - 1).astype(np.int32)
    zero_point = int(rng.integers(-20, 20)) if dtype.integer_range[0] < 0 else int(rng.integers(0, 40))
    return Rescale(bias, scale, shift, zero_point, axis=axis)


def brute_rescale(acc: np.ndarray, rescale: Rescale, dtype: DType) -> np.ndarray:
    """Hardware doc 3.2 in Python integers; bias and scale already broadcast to ``acc`` along ``rescale.axis``."""
    low, high = dtype.integer_range
    low, high = max(low, rescale.clip_min), min(high, rescale.clip_max)
    axis = 0 if rescale.axis is None else rescale.axis % acc.ndim
    shape = [1] * acc.ndim
    if rescale.bias.size > 1:
        shape[axis] = rescale.bias.size
    bias = np.broadcast_to(rescale.bias.reshape(shape), acc.shape).astype(object)
    scale = np.broadcast_to(rescale.scale.reshape(shape), acc.shape).astype(object)
    total = (acc.astype(object) + bias) * scale
    if rescale.shift:
        total = (total + (1 << (rescale.shift - 1))) >> rescale.shift
    return np.clip(total + rescale.zero_point, low, high).astype(dtype.numpy)


def assert_close_bf16(actual: np.ndarray, expected: np.ndarray) -> None:
    """Within one unit in the last place of bf16."""

    def ordered(values: np.ndarray) -> np.ndarray:
        bits = values.view(np.uint16).astype(np.int32)
        return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)

    distance = np.abs(ordered(actual) - ordered(expected))
    assert distance.max(initial=0) <= 1, f"{distance.max()} units in the last place"
