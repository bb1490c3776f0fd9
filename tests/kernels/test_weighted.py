"""Weighted maxima and sums with weights a channel, against sums in Python integers, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import infra
from tests.kernels.infra import CONFIG, brute_rescale, one_node, random_values, split, whole
from tests.kernels.infra_elementwise import Case, check_everywhere, cycles, single
from torq_byoc.errors import KernelError
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.limits import check_task
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import AluConfig, Op0, Op1, Role

RNG = np.random.default_rng(17)
SHAPES = [((2, 5, 6, 7), 1), ((2, 5, 6, 7), 3), ((3, 9), 1), ((1, 40, 1, 1), 1), ((1, 1, 3, 50), 1), ((2, 3, 4, 5), 0)]


def rescale_of(n: int, axis: int) -> Rescale:
    """Scales of both signs: the larger product may be the lower result."""
    scale = RNG.integers(20, 90, n) * RNG.choice([-1, 1], n)
    bias = RNG.integers(-500, 500, n)
    return Rescale(bias.astype(np.int32), scale.astype(np.int32), 13, 5, -120, 125, axis if n > 1 else None)


def weights_of(rows: int, n: int) -> np.ndarray:
    values = RNG.integers(-128, 128, (rows, n)).astype(np.int8)
    values[:, 0] = [0, -128, 127, 1][:rows]
    return values


def along(row: np.ndarray, axis: int, rank: int) -> np.ndarray:
    shape = [1] * rank
    shape[axis] = -1
    return row.astype(np.int64).reshape(shape)


def expected(data: list[np.ndarray], weights: np.ndarray, axis: int, rescale: Rescale, out: DType) -> np.ndarray:
    rows = [along(row, axis, data[0].ndim) for row in weights]
    wide = [x.astype(np.int64) for x in data]
    half = len(rows) // 2
    total = np.maximum(wide[0] * rows[0], wide[0] * rows[1])
    if len(data) == 2:
        total = sum(wide[0] * row for row in rows[:half]) + sum(wide[1] * row for row in rows[half:])
    return brute_rescale(total, rescale, out)


def case_of(count: int, rows: int, shape: tuple[int, ...], axis: int, n: int, kind: DType) -> tuple[Case, np.ndarray]:
    data = [random_values(RNG, shape, kind) for _ in range(count)]
    weights, rescale = weights_of(rows, n), rescale_of(n, axis)
    op = "weighted_max" if count == 1 else "weighted_sum"
    case = single(op, [*data, weights], shape, DType.INT8, constants=(count,), rescale=rescale, axis=axis)
    return case, expected(data, weights, axis, rescale, DType.INT8)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("kind", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize(("count", "rows"), [(1, 2), (2, 2), (2, 4)])
def test_everywhere(shape: tuple[int, ...], axis: int, kind: DType, count: int, rows: int):
    for n in {1, shape[axis]}:
        case, want = case_of(count, rows, shape, axis, n, kind)
        check_everywhere(*case, want)


@pytest.mark.parametrize("phases", [(2, 2), (1, 2), (2, 1)])
@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_in_stride_phases(phases: tuple[int, int], axis: int, count: int):
    shape = (2, 6, 5, 7)
    data, weights = [random_values(RNG, shape, DType.INT8) for _ in range(count)], weights_of(2, shape[axis])
    rescale = rescale_of(shape[axis], axis)
    op = "weighted_max" if count == 1 else "weighted_sum"
    operands = [*((shape, DType.INT8) for _ in data), weights]
    graph = one_node(op, operands, shape, DType.INT8, {"axis": axis}, rescale)
    want = expected(data, weights, axis, rescale, DType.INT8)
    for tiles in (whole(shape), split(shape, (1, 3, 4, 7), 1, 1), split(shape, (2, 6, 2, 7), 2, 2)):
        for resident in (False, True):
            actual = infra.run(graph, [*data, weights], tiles, output_phases=phases, whole_inputs=resident)
            np.testing.assert_array_equal(actual, want)


def test_both_cost_what_a_copy_costs():
    shape = (1, 8, 16, 24)
    x, rescale = np.zeros(shape, np.int8), rescale_of(8, 1)
    for data, rows in (([x], 2), ([x, x], 2), ([x, x], 4)):
        op = "weighted_max" if len(data) == 1 else "weighted_sum"
        operands = [*data, np.ones((rows, 8), np.int8)]
        assert cycles(*single(op, operands, shape, DType.INT8, constants=(len(data),), rescale=rescale, axis=1)) == (
            8 * 16 * 24 // 16
        )


def test_weights_along_the_lanes_run_at_the_rate_of_their_scales():
    x, rescale = np.zeros((1, 256), np.int8), rescale_of(256, 1)
    operands = [x, np.ones((2, 256), np.int8)]
    case = single("weighted_max", operands, x.shape, DType.INT8, constants=(1,), rescale=rescale, axis=1)
    assert cycles(*case) == 256 // 4


@pytest.mark.parametrize(
    ("op", "operands", "reason"),
    [
        ("weighted_max", [((2, 4), DType.INT16), ((2, 4), DType.INT8)], "one byte"),
        ("weighted_max", [((2, 4), DType.INT8), ((4, 4), DType.INT8)], "[4, 4]"),
        ("weighted_max", [((2, 4), DType.INT8), ((2, 3), DType.INT8)], "[2, 3]"),
        ("weighted_max", [((2, 4), DType.INT8), ((2, 4), DType.INT16)], "int16"),
        ("weighted_sum", [((2, 4), DType.INT8), ((2, 4), DType.UINT8), ((2, 4), DType.INT8)], "uint8"),
        ("weighted_sum", [((2, 4), DType.INT8), ((2, 1), DType.INT8), ((2, 4), DType.INT8)], "broadcast"),
        ("weighted_sum", [((2, 4), DType.INT8), ((2, 4), DType.INT8), ((3, 4), DType.INT8)], "[3, 4]"),
    ],
)
def test_what_it_refuses(op: str, operands: list, reason: str):
    graph = one_node(op, operands, (2, 4), DType.INT8, {"axis": 1}, None)
    assert reason in str(kernel_for(op).unsupported(graph, graph.nodes[0], CONFIG))


def test_maxima_of_products_of_several_bytes_do_not_exist():
    nest = LoopNest(
        (LoopSpec("x", 16, Role.LANE), LoopSpec("row", 2, Role.REDUCE)),
        Operand(0, DType.INT8, {"x": 1}),
        Operand(64, DType.INT16, {"x": 2}),
        Operand(128, DType.INT8, {"row": 1}),
        alu=AluConfig(Op0.MUL, Op1.MAX),
    )
    with pytest.raises(KernelError, match="fold on their own"):
        check_task(build(nest, CONFIG), CONFIG)
