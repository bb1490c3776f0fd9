"""Kernels that divide their reductions: any portions, any small tile, both simulators, against the reference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torq_byoc.kernels  # noqa: F401  (registers all kernels)
from tests.kernels.infra import (
    CONFIG,
    Lram,
    assert_close_bf16,
    one_node,
    random_rescale,
    random_values,
    reference,
)
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.kernel import ConstantPlacement, PackedConstant, Region, kernel_for
from torq_byoc.kernels.portion import CarryingKernel, Portion
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.execute import Pram, execute_task
from torq_byoc.npu_model.scalar import execute_task_scalar

I8, U8, I16, I32, BF = DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.BF16
SMALL = NpuConfig(lram_bytes=16 * 1024)


def place_pieces(lram: Lram, constant: PackedConstant, region: Region, portion: Region) -> ConstantPlacement:
    """The granules of an output region, of each the pieces of a portion."""
    first, count = 0, constant.data.shape[0]
    if constant.axis is not None:
        start, extent = region.start[constant.axis], region.extent[constant.axis]
        first, count = start // constant.step, -(-(start + extent) // constant.step) - start // constant.step
    data = constant.data[first : first + count]
    if constant.pieces > 1:
        pieces = data.reshape(count, constant.pieces, -1)
        data = pieces[:, portion.start[0] : portion.start[0] + portion.extent[0]].reshape(count, -1)
    return ConstantPlacement(lram.put(data), first, count, data.shape[1])


def run_in_portions(
    graph: OpGraph,
    inputs: Sequence[np.ndarray],
    tile: Sequence[int],
    portion: Sequence[int],
    *,
    whole_inputs: bool = False,
    scalar: bool = False,
    config: NpuConfig = SMALL,
) -> np.ndarray:
    """Compute a node box by box, every box in portions that follow one another in a fresh, noisy LRAM."""
    node = graph.nodes[0]
    kernel, info = kernel_for(node.op), graph.tensors[node.output]
    assert isinstance(kernel, CarryingKernel)
    packed = kernel.constants(graph, node, config)
    terms = boxes(kernel.reduction(graph, node, config), portion)
    result, rng = np.zeros(info.shape, info.dtype.numpy), np.random.default_rng(7)
    for region in boxes(info.shape, tile):
        pram, points = Pram(), {}
        for number, box in enumerate(terms):
            lram, part = Lram(rng), Portion(box, number == 0, number == len(terms) - 1)
            placed = []
            for position, values in zip(kernel.tensor_inputs(graph, node), inputs, strict=False):
                phases = kernel.input_layout(graph, node, position).phases
                wanted = kernel.portion_region(graph, node, position, region, box)
                there = Region.whole(values.shape) if whole_inputs else wanted
                placed.append(lram.tile(there, DType.of(values.dtype), phases))
                lram.write_tile(values, placed[-1])
            constants = [place_pieces(lram, constant, region, box) for constant in packed]
            output = lram.tile(region, info.dtype)
            (task,) = kernel.portion_tasks(graph, node, config, region, part, output, placed, constants)
            lram.check_reads(task)
            before = lram.bytes.copy()
            if scalar:
                execute_task_scalar(task, lram.bytes, points)
            else:
                execute_task(task, lram.bytes, pram)
            assert part.last or np.array_equal(before, lram.bytes), "a portion wrote before the last one"
        result[tuple(slice(s, s + e) for s, e in zip(region.start, region.extent, strict=True))] = lram.read_tile(
            output
        )
    return result


def boxes(shape: Sequence[int], size: Sequence[int]) -> list[Region]:
    """A box cut into boxes of a size, row-major."""
    starts = itertools.product(*(range(0, n, e) for n, e in zip(shape, size, strict=True)))
    return [Region(s, tuple(min(e, n - f) for e, n, f in zip(size, shape, s, strict=True))) for s in starts]


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    if found.dtype == BF.numpy:
        assert_close_bf16(found, wanted)
    else:
        np.testing.assert_array_equal(found, wanted)


def matmul(a, b, types=(I8, I8, I8), constant=True, seed=5) -> tuple[OpGraph, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    left, right = random_values(rng, a, types[0]), random_values(rng, b, types[1])
    wide = np.float64 if types[2].is_float else np.int64
    reach = float(np.abs(left.astype(wide) @ right.astype(wide)).max()) + 1
    shape = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    rescale = random_rescale(rng, b[-1], len(shape) - 1, reach, types[2])
    if I16 in types:
        rescale = Rescale(**{**rescale.__dict__, "sum_bits": 48})
    second = right if constant else (b, types[1])
    return one_node("matmul", [(a, types[0]), second], shape, types[2], {}, rescale), [left, right]


def conv(x, w, types=(I8, I8, I8), seed=6, **attrs) -> tuple[OpGraph, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1, "pad_value": 3, **attrs}
    out = [
        (x[2 + i] + attrs["pads"][i] + attrs["pads"][i + 2] - (w[2 + i] - 1) * attrs["dilations"][i] - 1)
        // attrs["strides"][i]
        + 1
        for i in (0, 1)
    ]
    reach = 1.0 if types[2].is_float else 40.0**2 * np.sqrt(np.prod(w[1:])) * 4
    rescale = random_rescale(rng, w[0], 1, float(reach), types[2])
    image, kernel = random_values(rng, x, types[0]), random_values(rng, w, types[1])
    return one_node("conv2d", [(x, types[0]), kernel], (x[0], w[0], *out), types[2], attrs, rescale), [image, kernel]


def reduce(shape, axes, kind="sum", dtype=I8, keepdims=True, per_channel=None) -> tuple[OpGraph, list[np.ndarray]]:
    rng = np.random.default_rng(8)
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape) if keepdims or axis not in axes)
    terms = int(np.prod([shape[axis] for axis in axes])) if kind == "sum" else 1
    channels = 1 if per_channel is None else kept[per_channel]
    rescale = random_rescale(rng, channels, per_channel, 128.0 * np.sqrt(terms), dtype)
    attrs = {"kind": kind, "axes": tuple(axes), "keepdims": keepdims}
    return one_node("reduce", [(shape, dtype)], kept, dtype, attrs, rescale), [random_values(rng, shape, dtype)]


def pool(op, x, kernel, strides, dtype=I8, dilations=(1, 1), per_pixel=False) -> tuple[OpGraph, list[np.ndarray]]:
    rng = np.random.default_rng(9)
    out = [(x[2 + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in (0, 1)]
    reach = 128.0 * (np.sqrt(kernel[0] * kernel[1]) if op == "sumpool" else 1)
    rescale = random_rescale(rng, out[0] * out[1] if per_pixel else 1, 2 if per_pixel else None, reach, dtype)
    attrs = {"kernel": kernel, "strides": strides, "pads": (0, 0, 0, 0), "dilations": dilations, "pad_value": 0}
    return one_node(op, [(x, dtype)], (*x[:2], *out), dtype, attrs, rescale), [random_values(rng, x, dtype)]


def carried_tile(graph: OpGraph) -> tuple[int, ...]:
    """The first of the largest boxes, clipped to the output."""
    node = graph.nodes[0]
    box = kernel_for(node.op).carried_boxes(graph, node, SMALL)[0]
    return tuple(min(size, n) for size, n in zip(box, graph.tensors[node.output].shape, strict=True))


CASES = {
    "matmul": (matmul((6, 37), (37, 70)), (10,)),
    "one row": (matmul((1, 64), (64, 130)), (63,)),
    "computed b, batches": (matmul((2, 5, 19), (2, 19, 70), constant=False), (8,)),
    "int16": (matmul((3, 40), (40, 19), (I16, I16, I16)), (7,)),
    "int16 x int8": (matmul((3, 40), (40, 37), (I16, I8, I16)), (39,)),
    "bf16": (matmul((5, 41), (41, 33), (BF, BF, BF)), (5,)),
    "3x3, border, one channel at a time": (conv((1, 5, 9, 11), (6, 5, 3, 3), pads=(1, 1, 1, 1)), (1,)),
    "asymmetric border": (conv((2, 7, 8, 7), (9, 7, 3, 2), pads=(0, 1, 2, 0)), (3,)),
    "stride 2": (conv((1, 6, 13, 12), (5, 6, 3, 3), pads=(1, 1, 1, 1), strides=(2, 2)), (4,)),
    "stride 4": (conv((1, 6, 16, 16), (5, 6, 4, 4), strides=(4, 4)), (4,)),
    "1x1, wide rows": (conv((1, 12, 3, 150), (4, 12, 1, 1)), (5,)),
    "dilated int16": (conv((1, 6, 9, 9), (4, 6, 3, 3), (I16, I8, I16), dilations=(2, 2)), (5,)),
    "bf16 image": (conv((1, 9, 6, 6), (5, 9, 3, 3), (BF, BF, BF), pads=(1, 1, 1, 1), pad_value=0.0), (2,)),
    "sum of rows": (reduce((70, 33), (1,)), (8,)),
    "sum of columns": (reduce((33, 70), (0,), keepdims=False), (32,)),
    "sum of everything": (reduce((3, 5, 7), (0, 1, 2)), (1, 2, 7)),
    "pixels of channels": (reduce((2, 70, 5, 6), (2, 3), per_channel=1), (1, 4)),
    "outer and inner": (reduce((4, 5, 6), (0, 2), keepdims=False), (1, 5)),
    "largest": (reduce((70, 33), (1,), "max"), (32,)),
    "smallest bf16 with bias": (reduce((19, 33), (1,), "min", BF), (10,)),
    "sum bf16": (reduce((5, 40), (1,), "sum", BF), (11,)),
    "average of a plane": (pool("sumpool", (1, 70, 6, 5), (6, 5), (1, 1)), (1, 3)),
    "windows of a row": (pool("sumpool", (1, 2, 9, 30), (4, 5), (1, 1), per_pixel=False), (2, 5)),
    "an entry a pixel": (pool("sumpool", (1, 2, 6, 8), (3, 3), (1, 1), per_pixel=True), (1, 1)),
    "largest of dilated windows": (pool("maxpool", (2, 3, 9, 9), (3, 3), (1, 1), dilations=(2, 3)), (2, 3)),
    "windows side by side": (pool("maxpool", (1, 5, 20, 20), (5, 5), (5, 5), BF), (1, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_portions_give_the_whole_result(name: str) -> None:
    (graph, operands), portion = CASES[name]
    wanted = reference(graph, operands)
    assert len(np.unique(wanted)) > 1 or wanted.size == 1, "a constant result proves nothing"
    tile = carried_tile(graph)
    assert_same(run_in_portions(graph, operands, tile, portion), wanted)
    assert_same(run_in_portions(graph, operands, tile, portion, whole_inputs=True), wanted)
    assert_same(run_in_portions(graph, operands, tile, portion, scalar=True), wanted)


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.integers(1, 9)] * 2, st.integers(2, 60)), st.integers(1, 59), st.booleans())
def test_matmuls_of_any_size(size, portion, constant) -> None:
    rows, columns, inner = size
    graph, operands = matmul((rows, inner), (inner, 9 * columns), constant=constant)
    assert_same(
        run_in_portions(graph, operands, carried_tile(graph), (min(portion, inner),)), reference(graph, operands)
    )


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(2, 12), st.integers(3, 14), st.integers(3, 14)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0))),
    st.sampled_from(((1, 1), (2, 2))),
    st.integers(1, 11),
)
def test_convolutions_of_any_size(image, kernel, pads, strides, portion) -> None:
    channels, height, width = image
    graph, operands = conv((1, channels, height, width), (7, channels, *kernel), pads=pads, strides=strides)
    if kernel_for("conv2d").unsupported(graph, graph.nodes[0], SMALL) is not None:
        return
    assert kernel_for("conv2d").reduction(graph, graph.nodes[0], SMALL) == (channels,)
    found = run_in_portions(graph, operands, carried_tile(graph), (min(portion, channels),))
    assert_same(found, reference(graph, operands))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.data(),
    st.sampled_from(("sum", "max", "min")),
    st.booleans(),
)
def test_reductions_of_any_axes(shape, data, kind, keepdims) -> None:
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    graph, operands = reduce(tuple(shape), axes, kind, keepdims=keepdims or len(axes) == len(shape))
    cut = data.draw(st.integers(0, len(axes) - 1))
    sizes = [shape[axis] for axis in axes]
    portion = (*(1,) * cut, data.draw(st.integers(1, sizes[cut])), *sizes[cut + 1 :])
    for box in kernel_for("reduce").carried_boxes(graph, graph.nodes[0], CONFIG):
        assert_same(run_in_portions(graph, operands, box, portion), reference(graph, operands))


def test_what_cannot_be_divided_says_so() -> None:
    extremum = one_node("reduce", [((4, 9), I8)], (4, 1), I32, {"kind": "argmax", "axes": (1,), "keepdims": True})
    grouped, _ = conv((1, 8, 5, 5), (8, 4, 3, 3), groups=2)
    depthwise, _ = conv((1, 8, 5, 5), (8, 1, 3, 3), groups=8)
    bordered = pool("maxpool", (1, 4, 9, 9), (3, 3), (2, 2))[0]
    for graph in (extremum, grouped, depthwise, bordered):
        kernel = kernel_for(graph.nodes[0].op)
        assert isinstance(kernel, CarryingKernel)
        assert kernel.reduction(graph, graph.nodes[0], SMALL) == ()
