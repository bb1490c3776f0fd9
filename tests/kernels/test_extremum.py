"""maximum, minimum and compare against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.infra import CONFIG, brute_rescale, random_values
from tests.kernels.infra_elementwise import check_everywhere, cycles, single
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType

RNG = np.random.default_rng(12)
KINDS = [DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.BF16, DType.FP32]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("op", "select"), [("maximum", np.maximum), ("minimum", np.minimum)])
def test_extrema_equal_numpy(op, select, kind):
    a, b = (random_values(RNG, (2, 3, 5, 9), kind) for _ in range(2))
    check_everywhere(*single(op, [a, b], a.shape, kind), select(a, b))


@pytest.mark.parametrize(("shape_a", "shape_b"), [((2, 3, 8), (8,)), ((3, 1), (3, 7)), ((4, 4), ()), ((5, 1), (1, 6))])
def test_broadcast_extrema(shape_a, shape_b):
    a = random_values(RNG, shape_a, DType.INT16)
    b = np.asarray(random_values(RNG, shape_b or (1,), DType.INT16).reshape(shape_b))
    shape = np.broadcast_shapes(shape_a, shape_b)
    check_everywhere(*single("maximum", [a, b], shape, DType.INT16), np.maximum(a, b))
    check_everywhere(*single("minimum", [a, b], shape, DType.INT16, constants=(1,)), np.minimum(a, b))


def test_extremum_is_rescaled():
    a, b = (random_values(RNG, (3, 4, 5), DType.INT8) for _ in range(2))
    rescale = Rescale(np.array([1, -2, 3, 4], np.int32), np.array([3, 5, 7, 9], np.int32), 3, -4, axis=1)
    check_everywhere(
        *single("maximum", [a, b], a.shape, DType.INT8, rescale=rescale),
        brute_rescale(np.maximum(a, b).astype(np.int64), rescale, DType.INT8),
    )


def test_float_extremum_with_a_clip_runs_on_as_many_lanes_as_act_has():
    a, b = (random_values(RNG, (64,), DType.BF16) for _ in range(2))
    rescale = Rescale(np.zeros(1, np.float32), clip_min=-0.5, clip_max=1.0)
    case = single("maximum", [a, b], (64,), DType.BF16, rescale=rescale)
    want = np.clip(np.maximum(a, b).astype(np.float32), -0.5, 1.0).astype(ml_dtypes.bfloat16)
    check_everywhere(*case, want)
    assert cycles(*case) == 64 // 8 * 2
    assert cycles(*single("maximum", [a, b], (64,), DType.BF16)) == 64 // 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("relation", "holds"), [("gt", np.greater), ("ge", np.greater_equal), ("eq", np.equal)])
def test_comparisons_give_bytes_of_zero_and_one(relation, holds, kind):
    a = random_values(RNG, (2, 3, 11), kind)
    b = random_values(RNG, (2, 3, 11), kind)
    b[0] = a[0]
    case = single("compare", [a, b], a.shape, DType.UINT8, relation=relation)
    check_everywhere(*case, holds(a, b).astype(np.uint8))


def test_comparison_of_signed_zeros_and_nans():
    a = np.array([0.0, -0.0, np.nan, 1.0, np.inf], ml_dtypes.bfloat16)
    b = np.array([-0.0, 0.0, np.nan, np.nan, np.inf], ml_dtypes.bfloat16)
    check_everywhere(*single("compare", [a, b], (5,), DType.UINT8, relation="eq"), np.array([1, 1, 0, 0, 1], np.uint8))
    check_everywhere(*single("compare", [a, b], (5,), DType.UINT8, relation="gt"), np.array([0, 0, 0, 0, 0], np.uint8))


def test_comparison_with_a_broadcast_row():
    a, b = random_values(RNG, (4, 6), DType.INT16), random_values(RNG, (6,), DType.INT16)
    b[:] = a[2]
    check_everywhere(*single("compare", [a, b], (4, 6), DType.INT8, relation="ge"), (a >= b).astype(np.int8))


def test_operands_of_two_types_are_refused():
    arrays = [np.zeros(4, np.int8), np.zeros(4, np.int16)]
    for op in ("maximum", "minimum", "compare"):
        graph, node, _ = single(op, arrays, (4,), DType.INT8, relation="gt")
        assert "int8 and int16" in kernel_for(op).unsupported(graph, node, CONFIG)
