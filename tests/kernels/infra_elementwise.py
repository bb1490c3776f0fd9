"""Checks one node of an element-wise or movement kernel everywhere a schedule may put it.

Every operand is placed where code generation may place it: as a dense tile of just the bytes a region needs, or
as a whole resident tensor.  Memory starts as noise; exactly the output's bytes must be written.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tests.kernels.infra import CONFIG, Lram, one_node, place_constant
from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.kernels.kernel import Placement, Region, kernel_for
from torq_byoc.kernels.limits import check_task
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import program_bytes
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.footprint import task_footprint
from torq_byoc.npu_model.isa import SliceTask
from torq_byoc.npu_model.scalar import execute_task_scalar
from torq_byoc.npu_model.timing import task_cycles

Case = tuple[OpGraph, Node, dict[str, np.ndarray]]
_LRAM = 96 * 1024
_TABLE_BYTES = 2048


def single(
    op: str,
    arrays: Sequence[np.ndarray],
    shape: Sequence[int],
    out: DType,
    *,
    constants: Sequence[int] = (),
    rescale: Rescale | None = None,
    **attrs: object,
) -> Case:
    """A graph of one node over the given arrays, its node and its inputs; ``constants`` are positions."""
    operands = [a if i in constants else (a.shape, DType.of(a.dtype)) for i, a in enumerate(arrays)]
    graph = one_node(op, operands, shape, out, attrs, rescale)
    return graph, graph.nodes[0], {f"x{i}": a for i, a in enumerate(arrays) if i not in constants}


def check_everywhere(graph: OpGraph, node: Node, values: Mapping[str, np.ndarray], expected: np.ndarray) -> None:
    """The node gives ``expected``: by the reference, whole by both simulators, and cut into tiles on two slices."""
    assert kernel_for(node.op).unsupported(graph, node, CONFIG) is None
    assert_same(evaluate(graph, values)[node.output], expected)
    everything = [[Region.whole(expected.shape)]]
    assert_same(run(graph, node, values, everything), expected)
    if expected.size <= 1024:
        assert_same(run(graph, node, values, everything, scalar=True), expected)
    tiles = cut_tiles(expected.shape, kernel_for(node.op).tile_steps(graph, node, CONFIG))
    mixes = [(), (True, False, True), (False, True, True)]
    for resident in mixes[: 1 + len(kernel_for(node.op).tensor_inputs(graph, node))]:
        assert_same(run(graph, node, values, tiles, resident=resident), expected)


def run(
    graph: OpGraph,
    node: Node,
    values: Mapping[str, np.ndarray],
    tiles: Sequence[Sequence[Region]],
    *,
    resident: Sequence[bool] = (),
    scalar: bool = False,
) -> np.ndarray:
    """The output, computed tile by tile.

    Args:
        tiles: for each tile the parts that slices compute.
        resident: for each tensor input, then the output: the whole tensor lies in LRAM, not just the tile.
        scalar: use the scalar interpreter.
    """
    info = graph.tensors[node.output]
    result = np.zeros(info.shape, info.dtype.numpy)
    for parts in tiles:
        lram = Lram(np.random.default_rng(7), _LRAM)
        output, lists = place_and_emit(graph, node, values, parts, lram, resident)
        for part, tasks in zip(parts, lists, strict=True):
            _execute(tasks, lram, output, part, scalar)
            result[_box(part)] = _bytes_view(lram.bytes, output, part).view(result.dtype)[..., 0]
    return result


def cycles(graph: OpGraph, node: Node, values: Mapping[str, np.ndarray]) -> int:
    """Cycles of the whole output as one dense tile on one slice."""
    region = Region.whole(graph.tensors[node.output].shape)
    lram = Lram(np.random.default_rng(7), 1 << 21)
    _, (tasks,) = place_and_emit(graph, node, values, [region], lram, ())
    return sum(map(task_cycles, tasks))


def place_and_emit(
    graph: OpGraph,
    node: Node,
    values: Mapping[str, np.ndarray],
    parts: Sequence[Region],
    lram: Lram,
    resident: Sequence[bool],
) -> tuple[Placement, list[list[SliceTask]]]:
    """Place the operands of one tile; returns the output's place and the tasks of every part."""
    kernel, tile = kernel_for(node.op), _hull(parts)
    positions = kernel.tensor_inputs(graph, node)
    stays = [*resident, *[False] * (len(positions) + 1)][: len(positions) + 1]
    arrays = {**graph.constants, **values}
    inputs = []
    for position, whole in zip(positions, stays, strict=False):
        value = arrays[node.inputs[position]]
        region = kernel.input_region(graph, node, position, tile)
        inputs.append(_place(lram, value, Region.whole(value.shape) if whole and region.size else region))
    constants = [place_constant(lram, packed, tile) for packed in kernel.constants(graph, node, CONFIG)]
    info = graph.tensors[node.output]
    output = _room(lram, Region.whole(info.shape) if stays[-1] else tile, info.dtype)
    tasks = [kernel.tasks(graph, node, CONFIG, part, output, inputs, constants) for part in parts]
    for task in itertools.chain.from_iterable(tasks):
        check_task(task, CONFIG)
    return output, tasks


def _place(lram: Lram, value: np.ndarray, region: Region) -> Placement:
    """A tensor's region in memory."""
    placed = _room(lram, region, DType.of(value.dtype))
    if region.size:
        _bytes_view(lram.bytes, placed, region)[...] = np.ascontiguousarray(value[_box(region)])[..., None].view(
            np.uint8
        )
    return placed


def _room(lram: Lram, region: Region, dtype: DType) -> Placement:
    """Room for a dense tile; a tensor without axes has one element."""
    if not region.extent:
        return Placement(lram.take(dtype.size), region, (), dtype)
    return lram.tile(region, dtype)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal type, shape and values; a NaN equals a NaN."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    exact = actual if np.issubdtype(actual.dtype, np.integer) else actual.astype(np.float64)
    np.testing.assert_array_equal(exact, expected.astype(exact.dtype))


def cut_tiles(shape: Sequence[int], steps: Sequence[int]) -> list[list[Region]]:
    """The last two axes that can be cut are cut before their middle; each tile is split between two slices."""
    axes = [axis for axis, step in enumerate(steps) if step and shape[axis] >= 2 * step][-2:]
    spans = []
    for axis, size in enumerate(shape):
        cut = size // 2 // steps[axis] * steps[axis] if axis in axes else 0
        spans.append([(0, cut), (cut, size - cut)] if cut else [(0, size)])
    tiles = [Region(tuple(s for s, _ in box), tuple(e for _, e in box)) for box in itertools.product(*spans)]
    return [_halves(tile, steps) for tile in tiles]


def _halves(tile: Region, steps: Sequence[int]) -> list[Region]:
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


def _box(part: Region) -> tuple[slice, ...]:
    return tuple(slice(s, s + e) for s, e in zip(part.start, part.extent, strict=True))


def _execute(tasks: Sequence[SliceTask], lram: Lram, output: Placement, part: Region, scalar: bool) -> None:
    """Run tasks; together they fit a slice program and write exactly the part's bytes."""
    tables = sum(_TABLE_BYTES for task in tasks if task.table)
    assert program_bytes(tasks) - tables <= CONFIG.slice_program_bytes
    allowed = np.zeros(lram.bytes.size, bool)
    _bytes_view(allowed, output, part)[...] = True
    written = np.zeros_like(allowed)
    for start, end in intervals.union(task_footprint(task).writes for task in tasks):
        written[start:end] = True
    np.testing.assert_array_equal(written, allowed)
    for task in tasks:
        (execute_task_scalar if scalar else execute_task)(task, lram.bytes)


def _bytes_view(memory: np.ndarray, output: Placement, part: Region) -> np.ndarray:
    """The part's bytes [..., element size] as a view of memory."""
    address = output.offset_of(part.start)
    return np.ndarray((*part.extent, output.dtype.size), memory.dtype, memory, address, (*output.strides, 1))
