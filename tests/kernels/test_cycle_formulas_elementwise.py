"""Cycles of the element-wise and movement kernels against the closed forms of the hardware description.

V elements enter the ALU and A results leave ACT in a cycle; a kernel takes the slower of the two.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.kernels.infra import CONFIG
from tests.kernels.infra_elementwise import cycles, single
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType

SHAPE = (1, 16, 8, 64)
N = math.prod(SHAPE)


def zeros(kind: str, shape=SHAPE) -> np.ndarray:
    return np.zeros(shape, DType(kind).numpy)


def cost(op: str, kinds, out: str, shape=SHAPE, shapes=None, **options) -> int:
    arrays = [zeros(kind, s) for kind, s in zip(kinds, shapes or [shape] * len(kinds), strict=True)]
    return cycles(*single(op, arrays, shape, DType(out), **options))


@pytest.mark.parametrize(("kind", "width"), [("int8", 8), ("uint8", 8), ("int16", 4)])
def test_add_with_int16_weights(kind, width):
    assert cost("sum2", [kind, kind], kind, weights=(4096, 3000)) == N // width


def test_add_bf16():
    assert cost("sum2", ["bfloat16", "bfloat16"], "bfloat16", weights=(1.0, -1.0)) == N // 8
    assert cost("sum2", ["bfloat16", "bfloat16"], "bfloat16", weights=(0.5, 2.0)) == N // 8


@pytest.mark.parametrize(
    ("kind", "weights", "width"), [("int8", (1, 1), 16), ("int8", (100, 7), 16), ("int16", (9, -9), 8)]
)
def test_add_with_equal_or_small_weights_is_twice_as_fast(kind, weights, width):
    assert cost("sum2", [kind, kind], kind, weights=weights) == N // width


def test_add_of_a_constant_is_one_pass():
    arrays = [zeros("int8"), np.ones((1, 16, 1, 1), np.int8)]
    case = single("sum2", arrays, SHAPE, DType.INT8, constants=(1,), weights=(1, 5))
    assert cycles(*case) == N // 16


@pytest.mark.parametrize(
    ("first", "second", "out", "width"),
    [
        ("int8", "int8", "int8", 16),
        ("int16", "int8", "int8", 8),
        ("int16", "int16", "int16", 4),
        ("bfloat16", "bfloat16", "bfloat16", 8),
    ],
)
@pytest.mark.parametrize("other", [SHAPE, (1, 16, 1, 1), (8, 64)])
def test_multiply(first, second, out, width, other):
    assert cost("mul", [first, second], out, shapes=[SHAPE, other]) == N // width
    assert cost("mul", [second, first], out, shapes=[other, SHAPE]) == N // width


@pytest.mark.parametrize("other", [SHAPE, (1, 16, 1, 1)])
def test_a_zero_point_of_a_factor_costs_nothing(other):
    assert cost("mul", ["int8", "uint8"], "int8", shapes=[SHAPE, other], zero_point=-7) == N // 16
    assert cost("mul", ["uint8", "int16"], "int8", shapes=[SHAPE, other], zero_point=9) == N // 8


@pytest.mark.parametrize(("kind", "width"), [("int8", 16), ("int16", 8), ("int32", 4), ("bfloat16", 8), ("float32", 8)])
def test_act_runs_at_the_width_of_act(kind, width):
    assert cost("act", [kind], kind) == N // width
    assert cost("act", [kind], kind, mode="NEG") == N // width


def test_requantize_a_channel_costs_no_more_than_a_tensor():
    channels = Rescale(np.arange(16, dtype=np.int32), np.arange(1, 17, dtype=np.int32), 4, axis=1)
    assert cost("act", ["int8"], "int8", rescale=channels) == N // 16


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_table(kind):
    assert cost("table", [kind], kind, table=np.zeros((512, 2), np.int16)) == N // 2


@pytest.mark.parametrize(("kind", "vector", "act"), [("int8", 64, 16), ("int16", 32, 8), ("bfloat16", 32, 8)])
@pytest.mark.parametrize("length", [2, 3, 7, 50])
def test_reduce_over_an_outer_axis(kind, vector, act, length):
    outer, inner = 3, 100
    got = cost("reduce", [kind], kind, (outer, inner), [(outer, length, inner)], kind="max", axes=(1,))
    lanes = min(vector, math.ceil(inner / act) * act)
    assert got == outer * math.ceil(inner / vector) * max(length, lanes // act)


@pytest.mark.parametrize(
    ("op", "kind", "width"), [("maximum", "int8", 16), ("maximum", "bfloat16", 8), ("minimum", "int16", 8)]
)
def test_extremum(op, kind, width):
    assert cost(op, [kind, kind], kind) == N // width


def test_compare():
    assert cost("compare", ["int8", "int8"], "uint8", relation="gt") == N // 16


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "bfloat16", "float32"])
def test_copies_move_sixteen_bytes_a_cycle(kind):
    size = DType(kind).size
    assert cost("reshape", [kind], kind, (N,), [SHAPE]) == N * size // 16
    assert cost("concat", [kind] * 2, kind, (1, 32, 8, 64), [SHAPE, SHAPE], axis=1) == 2 * N * size // 16
    assert cost("slice", [kind], kind, (1, 16, 4, 64), [SHAPE], begin=(0, 0, 2, 0)) == N // 2 * size // 16


@pytest.mark.parametrize("kind", ["int8", "int16", "float32"])
def test_fill_writes_sixty_four_bytes_a_cycle(kind):
    got = cost("pad", [kind], kind, (64, 64), [(1, 64)], before=(63, 0), after=(0, 0), value=0)
    line = 64 * DType(kind).size
    assert got == 63 * line // 64 + line // 16


def test_softmax_steps_on_rows():
    rows, length = 64, 64
    x, sums = (rows, length), (rows, 1)
    assert cost("reduce", ["int8"], "int8", sums, [x], kind="max", axes=(1,), keepdims=True) == rows * length // 4
    assert cost("scale_rows", ["int16", "int32"], "int8", x, [x, (rows, 1, 2)]) == rows * length // 8


def test_every_kernel_agrees_with_the_tasks_it_emits_on_two_slices():
    """Half of the rows takes half of the cycles: nothing in a task depends on the part it is."""
    graph, node, values = single("mul", [zeros("int8"), zeros("int8")], SHAPE, DType.INT8)
    half = single("mul", [zeros("int8", (1, 8, 8, 64))] * 2, (1, 8, 8, 64), DType.INT8)
    assert cycles(graph, node, values) == 2 * cycles(*half)
    assert kernel_for("mul").macs(graph, node) == 0
    assert CONFIG.act_width(DType.INT8, DType.INT8) == 16
