"""sum2 in each of its forms against sums in Python integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.infra import CONFIG, brute_rescale, random_values
from tests.kernels.infra_elementwise import check_everywhere, cycles, single
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.pairwise import needs_broadcast
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding

RNG = np.random.default_rng(11)


def plain(bias: int = 0, scale: int = 1, shift: int = 12, zero_point: int = 0, sum_bits: int = 32) -> Rescale:
    return Rescale(np.array([bias], np.int32), np.array([scale], np.int32), shift, zero_point, sum_bits=sum_bits)


def expected(a, b, weights, rescale, dtype) -> np.ndarray:
    total = a.astype(np.int64) * weights[0] + b.astype(np.int64) * weights[1]
    return brute_rescale(total, rescale, dtype)


@pytest.mark.parametrize("kind", [DType.INT8, DType.UINT8, DType.INT16])
@pytest.mark.parametrize(
    "weights", [(4096, 2731), (-32768, 32767), (100, -7), (2048, 2048), (3000, -3000), (1, 1), (-1, 1), (0, 5), (0, 0)]
)
def test_weighted_sums_are_exact(kind, weights):
    a, b = (random_values(RNG, (2, 3, 5, 7), kind) for _ in range(2))
    rescale = plain(bias=-6000, scale=5, shift=9, zero_point=3, sum_bits=48)
    case = single("sum2", [a, b], a.shape, kind, rescale=rescale, weights=weights)
    check_everywhere(*case, expected(a, b, weights, rescale, kind))


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((1, 4, 3, 5), (1, 4, 1, 1)),
        ((4, 1, 5), (4, 6, 5)),
        ((6, 1), (1, 9)),
        ((2, 3, 4), (4,)),
        ((3, 1, 1), (3, 1, 11)),
        ((5,), ()),
    ],
)
@pytest.mark.parametrize("kind", [DType.INT8, DType.INT16])
def test_broadcast_tensors_need_no_help_when_small(shape_a, shape_b, kind):
    a = random_values(RNG, shape_a, kind)
    b = np.asarray(random_values(RNG, shape_b or (1,), kind).reshape(shape_b))
    shape, rescale = np.broadcast_shapes(shape_a, shape_b), plain(bias=17, sum_bits=48)
    case = single("sum2", [a, b], shape, kind, rescale=rescale, weights=(3001, -1999))
    wide = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
    check_everywhere(*case, expected(*wide, (3001, -1999), rescale, kind))


@pytest.mark.parametrize("weights", [(4096, 2731), (1, 1), (-3, 7), (64, 300)])
@pytest.mark.parametrize("shape", [(), (1,), (1, 5, 1, 1), (6,), (1, 1, 6, 1)])
@pytest.mark.parametrize("position", [0, 1])
def test_constants_along_one_axis_become_biases(weights, shape, position):
    x = random_values(RNG, (2, 5, 6, 6), DType.INT8)
    c = np.asarray(random_values(RNG, shape or (1,), DType.INT8).reshape(shape))
    operands = [c, x] if position == 0 else [x, c]
    rescale = plain(bias=640, scale=3, shift=11)
    case = single("sum2", operands, x.shape, DType.INT8, constants=(position,), rescale=rescale, weights=weights)
    assert kernel_for("sum2").tensor_inputs(*case[:2]) == (1 - position,)
    wide = [np.broadcast_to(operand, x.shape) for operand in operands]
    check_everywhere(*case, expected(*wide, weights, rescale, DType.INT8))


def test_a_constant_along_two_axes_stays_a_tensor():
    x, c = random_values(RNG, (2, 5, 6), DType.INT8), random_values(RNG, (5, 6), DType.INT8)
    case = single("sum2", [x, c], x.shape, DType.INT8, constants=(1,), rescale=plain(), weights=(4000, 99))
    check_everywhere(*case, expected(x, np.broadcast_to(c, x.shape), (4000, 99), plain(), DType.INT8))


def test_a_constant_meets_a_rescale_of_another_axis():
    x, c = random_values(RNG, (3, 5, 6), DType.INT8), random_values(RNG, (6,), DType.INT8)
    rescale = Rescale(np.arange(5, dtype=np.int32) * 100, np.arange(1, 6, dtype=np.int32), 10, axis=1)
    case = single("sum2", [x, c], x.shape, DType.INT8, constants=(1,), rescale=rescale, weights=(300, 50))
    check_everywhere(*case, expected(x, np.broadcast_to(c, x.shape), (300, 50), rescale, DType.INT8))


def test_int32_sums_wrap_like_the_accumulator_and_then_saturate():
    a = np.array([2**31 - 1, -(2**31), 5, -7], np.int32)
    b = np.array([1, -1, 9, -2], np.int32)
    case = single("sum2", [a, b], (4,), DType.INT32, rescale=plain(shift=0), weights=(1, 1))
    check_everywhere(*case, np.array([-(2**31), 2**31 - 1, 14, -9], np.int32))


def test_bf16_sums_round_once():
    a = RNG.normal(0, 100, (3, 4, 9)).astype(ml_dtypes.bfloat16)
    b = RNG.normal(0, 1, (3, 4, 9)).astype(ml_dtypes.bfloat16)
    for weights in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (0.5, 2.0)):
        total = a.astype(np.float32) * np.float32(weights[0]) + b.astype(np.float32) * np.float32(weights[1])
        case = single("sum2", [a, b], a.shape, DType.BF16, weights=weights)
        check_everywhere(*case, total.astype(ml_dtypes.bfloat16))


def test_bf16_constant_and_clip():
    x = RNG.normal(0, 2, (2, 3, 9)).astype(ml_dtypes.bfloat16)
    c = RNG.normal(0, 2, (1, 3, 1)).astype(ml_dtypes.bfloat16)
    rescale = Rescale(np.zeros(1, np.float32), clip_min=0.0, clip_max=1.5)
    case = single("sum2", [x, c], x.shape, DType.BF16, constants=(1,), rescale=rescale, weights=(1.0, -1.0))
    want = np.clip(x.astype(np.float32) - c.astype(np.float32), 0, 1.5).astype(ml_dtypes.bfloat16)
    check_everywhere(*case, want)


def test_needs_broadcast_names_what_neither_a_split_nor_the_output_can_hold():
    def asked(a, b, shape, kind, op="sum2", **attrs):
        arrays = [np.zeros(a, kind), np.zeros(b, kind)]
        return needs_broadcast(*single(op, arrays, shape, DType.of(np.dtype(kind)), **attrs)[:2])

    assert asked((64, 99), (64, 99), (64, 99), np.int8, weights=(5, 6)) == ()
    assert asked((64, 99), (99,), (64, 99), np.int8, weights=(5, 6)) == ()
    assert asked((64, 1), (1, 99), (64, 99), np.int8, weights=(5, 6)) == (1,)
    assert asked((4, 1), (4, 2), (4, 2), np.int8, weights=(5, 6)) == ()
    flags = single("compare", [np.zeros((64, 99), np.int16), np.zeros(99, np.int16)], (64, 99), DType.UINT8)
    assert needs_broadcast(*flags[:2]) == (1,)
    assert (
        needs_broadcast(*single("mul", [np.zeros((64, 1), np.int8), np.zeros(99, np.int8)], (64, 99), DType.INT8)[:2])
        == ()
    )


def test_equal_weights_double_the_speed():
    a, b = (np.zeros((64, 64), np.int8) for _ in range(2))
    unequal = single("sum2", [a, b], a.shape, DType.INT8, rescale=plain(), weights=(4096, 4000))
    equal = single("sum2", [a, b], a.shape, DType.INT8, rescale=plain(bias=8192), weights=(4096, -4096))
    assert cycles(*unequal) == 4096 // 8
    assert cycles(*equal) == 4096 // 16


@pytest.mark.parametrize("kind", ["int32", "float32"])
def test_refusals_give_a_reason(kind):
    arrays = [np.zeros(4, kind), np.zeros(4, kind)]
    graph, node, _ = single("sum2", arrays, (4,), DType(kind), weights=(300, 7))
    assert kind in kernel_for("sum2").unsupported(graph, node, CONFIG)


def test_factors_stay_out_of_the_scale_where_rounding_looks_at_the_sign():
    """Double rounding adds by the sign of the sum, so a negative common weight must not move past it."""
    a, b = random_values(RNG, (4, 33), DType.UINT16), random_values(RNG, (4, 33), DType.UINT16)
    rescale = Rescale(np.array([-80], np.int32), np.array([-12_500_000], np.int32), 37, rounding=Rounding.DBL)
    total = -8 * (a.astype(np.int64) + b) - 80
    want = ((total * -12_500_000 + (1 << 36) + np.where(total >= 0, 1 << 30, -(1 << 30))) >> 37).astype(np.uint16)
    check_everywhere(*single("sum2", [a, b], a.shape, DType.UINT16, rescale=rescale, weights=(-8, -8)), want)


def test_a_broadcast_inner_axis_sets_all_outer_strides_apart():
    """[6, 6, 2] against [6, 6, 1]: nothing outside the inner axis walks alike either."""
    a, b = random_values(RNG, (6, 6, 2), DType.UINT8), random_values(RNG, (6, 6, 1), DType.UINT8)
    wider = single("sum2", [a, b], a.shape, DType.UINT16, weights=(3, 500))
    assert needs_broadcast(*wider[:2]) == (1,)
    same = single("sum2", [a, b], a.shape, DType.UINT8, weights=(3, 500), rescale=plain())
    assert needs_broadcast(*same[:2]) == ()
    check_everywhere(*same, expected(a, np.broadcast_to(b, a.shape), (3, 500), plain(), DType.UINT8))
