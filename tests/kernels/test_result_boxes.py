"""Element-wise results in the stride phases of their reader: the same values, at no more cycles than dense ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tests.kernels.infra import (
    CONFIG,
    Lram,
    Tile,
    node_cycles,
    one_node,
    place_constant,
    random_values,
    run,
    split,
    whole,
)
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.kernel import Region, kernel_for
from torq_byoc.kernels.result_boxes import result_boxes
from torq_byoc.kernels.views import view
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.timing import task_cycles

RNG = np.random.default_rng(23)
PHASES = [(2, 2), (1, 2), (2, 1)]
CHANNELS = Rescale(np.arange(6, dtype=np.int32) - 3, np.arange(20, 26, dtype=np.int32), 5, zero_point=3, axis=1)
SLOPES = {"table": np.stack([np.arange(-256, 256) * 64, np.full(512, 3)], axis=1).astype(np.int16)}


def graph_of(op: str, shapes: Sequence[Sequence[int]], shape: Sequence[int], kind: DType, **attrs: object) -> OpGraph:
    index = Rescale(np.zeros(1, np.int32), None)
    rescale = {"sum2": CHANNELS, "act": CHANNELS, "mul": CHANNELS, "table": index}.get(op)
    return one_node(op, [(tuple(s), kind) for s in shapes], shape, kind, attrs, rescale)


CASES = [
    ("act", 1, {}),
    ("table", 1, SLOPES),
    ("sum2", 2, {"weights": (100, -7)}),
    ("sum2", 2, {"weights": (4096, 3000)}),
    ("maximum", 2, {}),
    ("mul", 2, {}),
    ("mul", 2, {"zero_point": -77}),
]


@pytest.mark.parametrize("phases", PHASES)
@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (4, 6), (5, 7), (1, 9), (6, 1)])
@pytest.mark.parametrize(("op", "count", "attrs"), CASES)
def test_values(op: str, count: int, attrs: dict[str, object], rows: int, columns: int, phases: tuple[int, int]):
    kind = DType.INT16 if op == "table" else DType.INT8
    shape = (2, 6, rows, columns)
    arrays = [random_values(RNG, shape, kind) for _ in range(count)]
    graph = graph_of(op, [shape] * count, shape, kind, **attrs)
    want = kernel_for(op).reference(graph, graph.nodes[0], arrays)
    for tiles in (whole(shape), split(shape, (1, 3, 4, columns), 1, 1), split(shape, (2, 6, 2, columns), 2, 2)):
        for resident in (False, True):
            np.testing.assert_array_equal(run(graph, arrays, tiles, output_phases=phases, whole_inputs=resident), want)


def test_columns_cut_out_of_wider_rows():
    """Planes that are not contiguous: a task a phase."""
    shape = (1, 6, 4, 10)
    x = random_values(RNG, shape, DType.INT8)
    graph = graph_of("act", [shape], shape, DType.INT8)
    left, right = (Region((0, 0, 0, column), (1, 6, 4, extent)) for column, extent in ((0, 4), (4, 6)))
    tiles = [Tile(region, (region,)) for region in (left, right)]
    want = kernel_for("act").reference(graph, graph.nodes[0], [x])
    np.testing.assert_array_equal(run(graph, [x], tiles, output_phases=(2, 2), whole_inputs=True), want)


@pytest.mark.parametrize("other", [(1, 6, 1, 1), (6, 4, 1), (1, 1, 4, 6)])
def test_an_operand_that_is_repeated(other: tuple[int, ...]):
    shape = (1, 6, 4, 6)
    arrays = [random_values(RNG, shape, DType.INT8), random_values(RNG, other, DType.INT8)]
    graph = graph_of("sum2", [shape, other], shape, DType.INT8, weights=(5, 9))
    want = kernel_for("sum2").reference(graph, graph.nodes[0], arrays)
    np.testing.assert_array_equal(run(graph, arrays, whole(shape), output_phases=(2, 2)), want)


@pytest.mark.parametrize("other", [(1, 6, 1, 1), (1,), (6, 16, 1), (32,)])
@pytest.mark.parametrize("zero", [0, 127])
def test_a_factor_that_is_repeated(other: tuple[int, ...], zero: int):
    shape = (1, 6, 16, 32)
    arrays = [random_values(RNG, shape, DType.INT8), random_values(RNG, other, DType.INT8)]
    graph = graph_of("mul", [shape, other], shape, DType.INT8, zero_point=zero)
    want = kernel_for("mul").reference(graph, graph.nodes[0], arrays)
    np.testing.assert_array_equal(run(graph, arrays, whole(shape), output_phases=(2, 2)), want)


@pytest.mark.parametrize("other", [(1, 6, 1, 1), (1,)])
def test_a_factor_a_channel_costs_no_more_in_phases(other: tuple[int, ...]):
    shape = (1, 6, 16, 32)
    graph = graph_of("mul", [shape, other], shape, DType.INT8, zero_point=5)
    assert phased_cycles(graph, (2, 2)) == math.prod(shape) // 16


@pytest.mark.parametrize("kind", [DType.INT8, DType.BF16, DType.INT32])
@pytest.mark.parametrize("phases", PHASES)
def test_concat(kind: DType, phases: tuple[int, int]):
    arrays = [random_values(RNG, (1, channels, 6, 8), kind) for channels in (3, 1, 5)]
    graph = graph_of("concat", [a.shape for a in arrays], (1, 9, 6, 8), kind, axis=1)
    for tiles in (whole((1, 9, 6, 8)), split((1, 9, 6, 8), (1, 4, 6, 8), 2, 2)):
        actual = run(graph, arrays, tiles, output_phases=phases)
        assert actual.tobytes() == np.concatenate(arrays, axis=1).tobytes()


@pytest.mark.parametrize(
    ("op", "count", "attrs", "width"), [(*case, w) for case, w in zip(CASES, (16, 2, 16, 8, 16, 16, 16), strict=True)]
)
def test_cycles_are_those_of_a_dense_result(op: str, count: int, attrs: dict[str, object], width: int):
    """n / A, A results of ACT a cycle (hardware doc 4.3): planes of whole vectors waste nothing."""
    kind, shape = DType.INT16 if op == "table" else DType.INT8, (1, 6, 16, 32)
    graph = graph_of(op, [shape] * count, shape, kind, **attrs)
    assert node_cycles(graph) == phased_cycles(graph, (2, 2)) == math.prod(shape) // width


def phased_cycles(graph: OpGraph, phases: tuple[int, int]) -> int:
    node, region = graph.nodes[0], Region.whole(graph.tensors[graph.nodes[0].output].shape)
    lram = Lram(np.random.default_rng(0))
    inputs = [lram.tile(Region.whole(graph.tensors[n].shape), graph.tensors[n].dtype) for n in node.inputs]
    kernel = kernel_for(node.op)
    constants = [place_constant(lram, constant, region) for constant in kernel.constants(graph, node, CONFIG)]
    output = lram.tile(region, graph.tensors[node.output].dtype, phases)
    return sum(map(task_cycles, kernel.tasks(graph, node, CONFIG, region, output, inputs, constants)))


def test_one_box_unless_a_plane_has_gaps():
    lram, region = Lram(np.random.default_rng(0)), Region((0, 0, 2, 0), (1, 4, 4, 8))
    dense = lram.tile(Region((0, 0, 0, 0), (1, 4, 8, 8)), DType.INT8)
    wider = lram.tile(Region((0, 0, 0, 0), (1, 4, 8, 10)), DType.INT8)
    phased = lram.tile(region, DType.INT8, (2, 2))
    assert len(result_boxes(dense, region, [view(wider, region.start)])) == 1
    assert len(result_boxes(phased, region, [view(dense, region.start)])) == 1
    assert len(result_boxes(phased, region, [view(wider, region.start)])) == 4
