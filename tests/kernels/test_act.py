"""act and scale_rows: every mode against plain numpy or Python integers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.infra import CONFIG, brute_rescale, random_values
from tests.kernels.infra_elementwise import check_everywhere, cycles, single
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding

RNG = np.random.default_rng(13)
BF16 = ml_dtypes.bfloat16


def of(bias, scale, shift=0, zero_point=0, **rest) -> Rescale:
    return Rescale(
        np.atleast_1d(bias).astype(np.int32), np.atleast_1d(scale).astype(np.int32), shift, zero_point, **rest
    )


@pytest.mark.parametrize(
    ("source", "target"), [("int8", "int16"), ("uint8", "int8"), ("int16", "uint8"), ("int32", "int8")]
)
def test_requantize(source, target):
    x = random_values(RNG, (2, 3, 7, 5), DType(source))
    rescale = of(-128, 1_567_901_233, 35, 7, sum_bits=48)
    case = single("act", [x], x.shape, DType(target), rescale=rescale)
    check_everywhere(*case, brute_rescale(x.astype(np.int64), rescale, DType(target)))


@pytest.mark.parametrize("axis", [1, -1, 0])
def test_requantize_along_any_axis(axis):
    x = random_values(RNG, (3, 4, 2, 6), DType.INT16)
    count = x.shape[axis]
    rescale = of(RNG.integers(-99, 99, count), RNG.integers(1, 1 << 22, count), 29, axis=axis, sum_bits=48)
    check_everywhere(
        *single("act", [x], x.shape, DType.INT8, rescale=rescale),
        brute_rescale(x.astype(np.int64), rescale, DType.INT8),
    )


def test_equal_entries_cost_no_lanes():
    x = np.zeros((8, 64), np.int8)
    equal, unequal = of([5] * 64, [9] * 64, 2, axis=1), of(range(64), [9] * 64, 2, axis=1)
    assert cycles(*single("act", [x], x.shape, DType.INT8, rescale=equal)) == 8 * 64 // 16
    assert cycles(*single("act", [x], x.shape, DType.INT8, rescale=unequal)) == 8 * 64 // 4


@pytest.mark.parametrize("rounding", list(Rounding))
def test_ties_follow_the_rounding_mode(rounding):
    x = np.arange(-12, 13).astype(np.int8)
    rescale = of(0, 1, 2, rounding=rounding)
    want = {
        Rounding.NTP: np.floor(x / 4 + 0.5),
        Rounding.OFF: np.floor(x / 4),
        Rounding.NTE: np.rint(x / 4),
        Rounding.DBL: np.floor(x / 4 + 0.5),
    }[rounding]
    check_everywhere(*single("act", [x], x.shape, DType.INT8, rescale=rescale), want.astype(np.int8))


def test_relu_and_clip_need_no_entries():
    x = random_values(RNG, (4, 33), DType.INT8)
    case = single("act", [x], x.shape, DType.INT8, rescale=of(0, 1, clip_min=-3, clip_max=90))
    assert kernel_for("act").constants(*case[:2], CONFIG) == ()
    check_everywhere(*case, np.clip(x, -3, 90))


@pytest.mark.parametrize(
    ("source", "target"), [("int32", "int8"), ("int8", "int32"), ("uint8", "int16"), ("int16", "uint16")]
)
def test_integer_casts_saturate(source, target):
    x = random_values(RNG, (5, 13), DType(source))
    low, high = DType(target).integer_range
    want = np.clip(x.astype(np.int64), low, high).astype(target)
    check_everywhere(*single("act", [x], x.shape, DType(target)), want)


@pytest.mark.parametrize("target", [DType.BF16, DType.FP32])
@pytest.mark.parametrize("source", [DType.INT8, DType.INT16, DType.INT32])
def test_integers_become_floats(source, target):
    x = random_values(RNG, (3, 21), source)
    want = x.astype(np.float32).astype(target.numpy)
    check_everywhere(*single("act", [x], x.shape, target, mode="I2F"), want)


@pytest.mark.parametrize("source", [DType.BF16, DType.FP32])
def test_floats_become_integers(source):
    x = np.array([-1e9, -2.5, -1.5, -0.4, 0.5, 1.5, 2.5, 126.6, 128.0, np.inf, -np.inf, np.nan], source.numpy)
    down = Rescale(np.zeros(1, np.float32), rounding=Rounding.OFF)
    even = Rescale(np.zeros(1, np.float32), rounding=Rounding.NTE)
    wide = np.nan_to_num(np.clip(x.astype(np.float64), -1e6, 1e6))
    for rescale, round_ in ((down, np.trunc), (even, np.rint)):
        want = np.clip(round_(wide), -128, 127).astype(np.int8)
        check_everywhere(*single("act", [x], x.shape, DType.INT8, mode="F2I", rescale=rescale), want)


def test_float_casts_and_bias():
    x = random_values(RNG, (3, 5, 8), DType.FP32)
    check_everywhere(*single("act", [x], x.shape, DType.BF16), x.astype(BF16))
    half = x.astype(BF16)
    check_everywhere(*single("act", [half], x.shape, DType.FP32), half.astype(np.float32))
    rescale = Rescale(RNG.normal(0, 1, 5).astype(np.float32), clip_min=0.0, axis=1)
    want = np.maximum(half.astype(np.float32) + rescale.bias[:, None], 0).astype(BF16)
    check_everywhere(*single("act", [half], x.shape, DType.BF16, rescale=rescale), want)


def test_abs_neg_floor_ceil_clz():
    x = random_values(RNG, (4, 19), DType.INT8)
    wide = x.astype(np.int64)
    check_everywhere(*single("act", [x], x.shape, DType.INT8, mode="ABS"), np.minimum(abs(wide), 127).astype(np.int8))
    check_everywhere(*single("act", [x], x.shape, DType.INT8, mode="NEG"), np.minimum(-wide, 127).astype(np.int8))
    f = random_values(RNG, (4, 19), DType.BF16)
    for mode, function in (("ABS", np.abs), ("NEG", np.negative), ("FLR", np.floor), ("CEL", np.ceil)):
        check_everywhere(
            *single("act", [f], f.shape, DType.BF16, mode=mode), function(f.astype(np.float32)).astype(BF16)
        )
    n = np.array([0, 1, -1, 255, 2**31 - 1, -(2**31)], np.int32)
    leading = np.array([32, 31, 0, 24, 1, 0], np.int8)
    check_everywhere(*single("act", [n], n.shape, DType.INT8, mode="CLZ"), leading)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("mode", ["LSL", "LSR", "ASR"])
def test_shift_amounts_come_from_a_tensor(mode, rows):
    x = random_values(RNG, (3, 5, 6), DType.INT32)
    shape = (3, 1, 1, 2) if rows else (3, 5, 6, 2)
    amounts = np.zeros(shape, np.int32)
    amounts[..., 1] = RNG.integers(0, 32, shape[:-1])
    shift = np.broadcast_to(amounts[..., 1], x.shape).astype(object)
    wide = x.astype(object)
    if mode == "LSL":
        want = ((wide << shift) + 2**31) % 2**32 - 2**31
    elif mode == "LSR":
        want = ((wide % 2**32) >> shift) + 0
        want = (want + 2**31) % 2**32 - 2**31
    else:
        half = np.where(shift > 0, (1 << shift) >> 1, 0)
        want = (wide + half) >> shift
    check_everywhere(*single("act", [x, amounts], x.shape, DType.INT32, mode=mode), want.astype(np.int32))


@pytest.mark.parametrize("shape", [(2, 3, 1, 2), (2, 3, 8, 2), (8, 2), (1, 2), (2,)])
def test_scale_rows_takes_entries_at_run_time(shape):
    x = random_values(RNG, (2, 3, 8), DType.INT16)
    entries = np.empty(shape, np.int32)
    entries[..., 0] = RNG.integers(-1000, 1000, shape[:-1])
    entries[..., 1] = RNG.integers(-(1 << 24), 1 << 24, shape[:-1])
    rescale = Rescale(np.zeros(1, np.int32), shift=31, zero_point=-3, clip_max=100, sum_bits=48)
    total = (x.astype(object) + entries[..., 0]) * entries[..., 1]
    want = np.clip(((total + (1 << 30)) >> 31) - 3, -128, 100).astype(np.int8)
    check_everywhere(*single("scale_rows", [x, entries], x.shape, DType.INT8, rescale=rescale), want)


def test_scale_rows_adds_float_rows():
    x = random_values(RNG, (4, 6, 9), DType.BF16)
    rows = RNG.normal(0, 3, (4, 6, 1, 1)).astype(np.float32)
    want = (x.astype(np.float32) + rows[..., 0]).astype(BF16)
    check_everywhere(*single("scale_rows", [x, rows], x.shape, DType.BF16), want)


def test_scale_rows_runs_at_full_width_along_rows():
    x, entries = np.zeros((16, 64), np.int8), np.ones((16, 1, 2), np.int32)
    assert cycles(*single("scale_rows", [x, entries], x.shape, DType.INT8)) == 16 * 64 // 16


@pytest.mark.parametrize(
    ("op", "arrays", "out", "attrs", "reason"),
    [
        ("act", [np.zeros(4, np.int8)], DType.BF16, {}, "does not turn int8 into bfloat16"),
        ("act", [np.zeros(4, np.int8)], DType.INT8, {"mode": "SIN"}, "SIN"),
        ("act", [np.zeros(4, np.int8)], DType.INT8, {"mode": "ASR"}, "two inputs"),
        ("act", [np.zeros(4, np.int32), np.zeros(4, np.int32)], DType.INT32, {"mode": "LSL"}, "int32[..., 2]"),
        ("act", [np.zeros(4, np.float32)], DType.FP32, {"mode": "CLZ"}, "CLZ"),
        ("scale_rows", [np.zeros(4, np.int8), np.zeros((4, 2), np.int16)], DType.INT8, {}, "int32[..., 2]"),
    ],
)
def test_refusals_give_a_reason(op, arrays, out, attrs, reason):
    graph, node, _ = single(op, arrays, (4,), out, **attrs)
    assert reason in kernel_for(op).unsupported(graph, node, CONFIG)


def test_an_infinite_clip_is_no_clip():
    x = random_values(RNG, (9,), DType.INT8)
    rescale = of(0, 1, clip_min=-math.inf, clip_max=math.inf)
    check_everywhere(*single("act", [x], (9,), DType.INT8, rescale=rescale), x)
