"""Runs one node's slice tasks on a simulated LRAM, tile by tile, and checks what must hold for every task.

Every operand is placed where code generation may place it: as a dense tile of just the bytes a region needs,
or as a whole resident tensor.  Memory starts as garbage; only the output's region may change.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.kernels.kernel import ConstantPlacement, Placement, Region, kernel_for
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import program_bytes
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.footprint import task_footprint
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.limits import task_problems
from torq_byoc.npu_model.scalar import execute_task_scalar
from torq_byoc.npu_model.timing import task_cycles

CONFIG = NpuConfig()
_WORD = 8


def single(
    op: str,
    arrays: Sequence[np.ndarray],
    shape: Sequence[int],
    out: DType,
    *,
    constants: Sequence[int] = (),
    rescale: Rescale | None = None,
    **attrs: object,
) -> tuple[OpGraph, Node, dict[str, np.ndarray]]:
    """A graph of one node over the given arrays; positions in ``constants`` become constants."""
    builder = GraphBuilder("test")
    names, values = [], {}
    for position, array in enumerate(arrays):
        if position in constants:
            names.append(builder.constant(array, f"c{position}"))
        else:
            names.append(builder.input(f"x{position}", array.shape, DType.of(array.dtype)))
            values[names[-1]] = array
    builder.output(builder.emit(op, names, shape, out, attrs=attrs, rescale=rescale, hint="y"))
    graph = builder.finish()
    return graph, graph.nodes[0], values


def reference(graph: OpGraph, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """The node's result by ``kernels.reference``."""
    return evaluate(graph, values)[graph.outputs[0]]


class Memory:
    """An LRAM full of garbage with a bump allocator."""

    def __init__(self) -> None:
        self.bytes = np.random.default_rng(7).integers(0, 256, CONFIG.lram_bytes, np.uint8)
        self.top = CONFIG.lram_reserve

    def allocate(self, nbytes: int) -> int:
        address = self.top
        self.top += -(-nbytes // _WORD) * _WORD
        assert self.top <= CONFIG.lram_bytes, "the test's tile does not fit"
        return address

    def put(self, data: np.ndarray) -> int:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        address = self.allocate(raw.size)
        self.bytes[address : address + raw.size] = raw
        return address

    def place(self, value: np.ndarray, region: Region, whole: bool) -> Placement:
        """Put a tensor, or just a region of it, into memory."""
        if whole and region.size:
            region = Region.whole(value.shape)
        part = value[tuple(slice(s, s + e) for s, e in zip(region.start, region.extent, strict=True))]
        strides = np.empty(region.extent, np.uint8).strides if region.size else (1,) * value.ndim
        strides = tuple(stride * value.dtype.itemsize for stride in strides)
        return Placement(self.put(part), region, strides, DType.of(value.dtype))


def run_tile(
    graph: OpGraph,
    node: Node,
    values: Mapping[str, np.ndarray],
    parts: Sequence[Region],
    result: np.ndarray,
    *,
    whole: Sequence[bool] = (),
    scalar: bool = False,
) -> int:
    """Compute the bounding box of ``parts`` with one task list a part; returns the cycles of the slowest."""
    kernel, memory = kernel_for(node.op), Memory()
    assert kernel.unsupported(graph, node, CONFIG) is None
    tile = _hull(parts)
    positions = kernel.tensor_inputs(graph, node)
    resident = [*whole, *[False] * (len(positions) + 1 - len(whole))]
    everything = {**graph.constants, **values}
    inputs = []
    for position, stays in zip(positions, resident, strict=False):
        region = kernel.input_region(graph, node, position, tile)
        inputs.append(memory.place(everything[node.inputs[position]], region, stays))
    constants = [_place_constant(memory, packed, tile) for packed in kernel.constants(graph, node, CONFIG)]
    blank = np.zeros(result.shape, result.dtype)
    output = memory.place(blank, tile, resident[len(positions)])
    cycles = []
    for part in parts:
        tasks = kernel.tasks(graph, node, CONFIG, part, output, inputs, constants)
        _execute(tasks, memory, output, part, scalar)
        cycles.append(sum(map(task_cycles, tasks)))
    for part in parts:
        box = tuple(slice(s, s + e) for s, e in zip(part.start, part.extent, strict=True))
        result[box] = _view(memory, output, part)
    return max(cycles)


def run(graph: OpGraph, node: Node, values: Mapping[str, np.ndarray], **options: object) -> np.ndarray:
    """The whole output as one tile on one slice."""
    info = graph.tensors[node.output]
    result = np.zeros(info.shape, info.dtype.numpy)
    run_tile(graph, node, values, [Region.whole(info.shape)], result, **options)
    return result


def cycles(graph: OpGraph, node: Node, values: Mapping[str, np.ndarray]) -> int:
    """Cycles of the whole output on one slice."""
    info = graph.tensors[node.output]
    return run_tile(graph, node, values, [Region.whole(info.shape)], np.zeros(info.shape, info.dtype.numpy))


def check_everywhere(graph: OpGraph, node: Node, values: Mapping[str, np.ndarray], expected: np.ndarray) -> None:
    """The node gives ``expected``: whole, by both simulators, resident, cut into odd tiles, on two slices."""
    assert_same(reference(graph, values), expected)
    assert_same(run(graph, node, values), expected)
    assert_same(run(graph, node, values, whole=(True, True, True)), expected)
    if expected.size <= 4096:
        assert_same(run(graph, node, values, scalar=True), expected)
    steps = kernel_for(node.op).tile_steps(graph, node, CONFIG)
    if not any(step and step < size for step, size in zip(steps, expected.shape, strict=True)):
        return
    for whole in ((), (True,), (False, True), (False, False, True)):
        result = np.zeros(expected.shape, expected.dtype)
        for tile in _tiles(expected.shape, steps):
            run_tile(graph, node, values, _halves(tile, steps), result, whole=whole)
        assert_same(result, expected)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal type, shape and bits, with every NaN alike."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if np.issubdtype(expected.dtype, np.integer):
        np.testing.assert_array_equal(actual, expected)
    else:
        np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


def _tiles(shape: Sequence[int], steps: Sequence[int]) -> list[Region]:
    """Every axis cut once, a step or so before the middle where it can be."""
    spans = []
    for size, step in zip(shape, steps, strict=True):
        cut = (size // 2) // step * step if step else 0
        spans.append([(0, cut), (cut, size - cut)] if cut else [(0, size)])
    return [Region(tuple(s for s, _ in box), tuple(e for _, e in box)) for box in itertools.product(*spans)]


def _halves(tile: Region, steps: Sequence[int]) -> list[Region]:
    """A tile split between two slices along the last axis that can be."""
    for axis in reversed(range(len(steps))):
        step, size = steps[axis], tile.extent[axis]
        if step and size >= 2 * step:
            first = size // step // 2 * step
            return [_cut(tile, axis, 0, first), _cut(tile, axis, first, size - first)]
    return [tile]


def _cut(tile: Region, axis: int, offset: int, size: int) -> Region:
    start, extent = list(tile.start), list(tile.extent)
    start[axis] += offset
    extent[axis] = size
    return Region(tuple(start), tuple(extent))


def _hull(parts: Sequence[Region]) -> Region:
    start = np.min([part.start for part in parts], axis=0)
    end = np.max([np.add(part.start, part.extent) for part in parts], axis=0)
    return Region(tuple(map(int, start)), tuple(map(int, end - start)))


def _place_constant(memory: Memory, packed: object, tile: Region) -> ConstantPlacement:
    granules, nbytes = packed.data.shape
    first, count = 0, granules
    if packed.axis is not None:
        start, extent = tile.start[packed.axis], tile.extent[packed.axis]
        first = start // packed.step
        count = -(-(start + extent) // packed.step) - first
    return ConstantPlacement(memory.put(packed.data[first : first + count]), first, count, nbytes)


def _execute(tasks: Sequence[SliceTask], memory: Memory, output: Placement, part: Region, scalar: bool) -> None:
    """Run tasks; each is one the machine can do, writes only the part's bytes, and all of them in the end."""
    assert program_bytes(tasks) - sum(2048 for task in tasks if task.table) <= CONFIG.slice_program_bytes
    allowed = _byte_mask(output, part)
    written = np.zeros_like(allowed)
    for task in tasks:
        assert task_problems(task, CONFIG) == []
        for start, end in task_footprint(task).writes:
            written[start:end] = True
        (execute_task_scalar if scalar else execute_task)(task, memory.bytes)
    np.testing.assert_array_equal(written, allowed)


def _byte_mask(output: Placement, part: Region) -> np.ndarray:
    mask = np.zeros(CONFIG.lram_bytes, bool)
    size = output.dtype.size
    view = np.ndarray((*part.extent, size), bool, mask, output.offset_of(part.start), (*output.strides, 1))
    view[...] = True
    return mask


def _view(memory: Memory, output: Placement, part: Region) -> np.ndarray:
    return np.ndarray(
        part.extent, output.dtype.numpy, memory.bytes, output.offset_of(part.start), output.strides
    ).copy()
