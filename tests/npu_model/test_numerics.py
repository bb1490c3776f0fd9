"""ACT arithmetic against hand-computed numbers, Python integers of any size, and bit-level definitions."""

from __future__ import annotations

import math
import struct
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torq_byoc.errors import InternalError, QuantizationError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, ActMode, Rounding
from torq_byoc.npu_model.numerics import (
    act_float,
    apply_act,
    fixed_point,
    register_bound,
    rescale,
    round_bf16,
    round_to,
    saturate,
    table_lookup,
    wrap,
)

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def _shifted(value: int, shift: int, rounding: Rounding, total: int) -> int:
    """The rounding shift on Python integers."""
    if shift == 0 or rounding is Rounding.OFF:
        return value >> shift
    if rounding is Rounding.NTE:
        quotient, rest = divmod(value, 1 << shift)
        half = 1 << (shift - 1)
        return quotient + (rest > half or (rest == half and quotient % 2 == 1))
    if rounding is Rounding.DBL and shift > 31:
        value += (1 << 30) if total >= 0 else -(1 << 30)
    return (value + (1 << (shift - 1))) >> shift


def _rescaled(
    acc: int, bias: int, scale: int, shift: int, rounding: Rounding, zero_point: int, out: DType, bits: int
) -> int:
    acc &= (1 << bits) - 1
    if acc >> (bits - 1):
        acc -= 1 << bits
    total = acc + bias
    value = _shifted(total * scale, shift, rounding, total) + zero_point
    low, high = out.integer_range
    return min(max(value, low), high)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        # value / 4 for        -7    -6    -5    -3    -2   -1   1   2   3   5   6   7   10
        (Rounding.NTP, [-2, -1, -1, -1, 0, 0, 0, 1, 1, 1, 2, 2, 3]),
        (Rounding.OFF, [-2, -2, -2, -1, -1, -1, 0, 0, 0, 1, 1, 1, 2]),
        (Rounding.NTE, [-2, -2, -1, -1, 0, 0, 0, 0, 1, 1, 2, 2, 2]),
        (Rounding.DBL, [-2, -1, -1, -1, 0, 0, 0, 1, 1, 1, 2, 2, 3]),
    ],
)
def test_ties_and_negative_numbers_round_as_named(rounding: Rounding, expected: list[int]) -> None:
    values = np.array([-7, -6, -5, -3, -2, -1, 1, 2, 3, 5, 6, 7, 10])
    assert rescale(values, shift=2, rounding=rounding).tolist() == expected


def test_double_rounding_pushes_a_near_tie_away_from_zero() -> None:
    # 3 * 2^31 - 1 over 2^32 is just below 1.5; 2^30 more carries it over, 2^30 less keeps -1.5 from reaching -1.
    scale, shift = np.array([2**31 - 1]), 32
    assert rescale(np.array([3]), 0, scale, shift, Rounding.NTP).item() == 1
    assert rescale(np.array([3]), 0, scale, shift, Rounding.DBL).item() == 2
    assert rescale(np.array([-3]), 0, scale, shift, Rounding.NTP).item() == -1
    assert rescale(np.array([-3]), 0, scale, shift, Rounding.DBL).item() == -2


def test_bias_scale_shift_zero_point_and_clip_apply_in_that_order() -> None:
    # (100 + 20) * 3 = 360; (360 + 8) >> 4 = 23; + 5 = 28; clip to 25.
    assert rescale(np.array([100]), 20, 3, 4, zero_point=5).item() == 28
    assert rescale(np.array([100]), 20, 3, 4, zero_point=5, clip_max=25).item() == 25
    assert rescale(np.array([-1000]), 0, 1, 0, zero_point=5, clip_min=-3).item() == -3


def test_channels_broadcast() -> None:
    acc = np.arange(6).reshape(1, 2, 3)
    result = rescale(acc, np.array([[10], [20]]), np.array([[1], [2]]), 1)
    assert result.dtype == np.int8
    assert result.tolist() == [[[5, 6, 6], [23, 24, 25]]]


@pytest.mark.parametrize(
    ("out", "low", "high"),
    [(DType.INT8, -128, 127), (DType.UINT8, 0, 255), (DType.INT16, -32768, 32767), (DType.UINT16, 0, 65535)],
)
def test_results_saturate_at_the_type_even_when_the_clip_is_wider(out: DType, low: int, high: int) -> None:
    values = np.array([-(10**9), 10**9])
    assert saturate(values, out).tolist() == [low, high]
    assert rescale(values, clip_min=-1e9, clip_max=1e9, out=out).tolist() == [low, high]


def test_accumulators_wrap_at_their_width() -> None:
    assert wrap(np.array([2**31, -(2**31) - 1]), 32).tolist() == [INT32_MIN, INT32_MAX]
    assert wrap(np.array([2**47, -(2**47) - 1]), 48).tolist() == [-(2**47), 2**47 - 1]
    assert rescale(np.array([2**31]), out=DType.INT32).item() == INT32_MIN
    assert rescale(np.array([2**31]), out=DType.INT32, sum_bits=48).item() == INT32_MAX


def test_the_bias_does_not_wrap() -> None:
    assert rescale(np.array([INT32_MAX]), 1, None, 1, out=DType.INT32).item() == 2**30


@pytest.mark.parametrize("rounding", list(Rounding))
def test_products_of_eighty_bits_are_exact(rounding: Rounding) -> None:
    sums = [2**47 - 1, -(2**47), 2**46 + 12345, -(2**46) - 1, 2**33 + 1, -3, 0]
    scales = [INT32_MAX, INT32_MIN, 1, -1, 0x40000001]
    for shift in (0, 1, 17, 31, 32, 33, 47, 48, 63):
        acc, scale = np.array(sums)[:, None], np.array(scales)[None]
        result = rescale(acc, 77, scale, shift, rounding, -9, out=DType.INT32, sum_bits=48)
        wanted = [[_rescaled(p, 77, s, shift, rounding, -9, DType.INT32, 48) for s in scales] for p in sums]
        assert result.tolist() == wanted


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-(2**49), 2**49), min_size=1, max_size=4),
    st.integers(INT32_MIN, INT32_MAX),
    st.integers(INT32_MIN, INT32_MAX),
    st.integers(0, 63),
    st.sampled_from(list(Rounding)),
    st.integers(-32768, 32767),
    st.sampled_from([DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32]),
    st.sampled_from([32, 48]),
)
def test_rescale_equals_python_integers(
    sums: list[int],
    bias: int,
    scale: int,
    shift: int,
    rounding: Rounding,
    zero_point: int,
    out: DType,
    bits: int,
) -> None:
    result = rescale(np.array(sums), bias, scale, shift, rounding, zero_point, out=out, sum_bits=bits)
    assert result.tolist() == [_rescaled(p, bias, scale, shift, rounding, zero_point, out, bits) for p in sums]


def _bf16_bits(value: float) -> int:
    """Round to nearest even by comparing the two bf16 neighbours in exact arithmetic."""
    word = struct.unpack("<I", struct.pack("<f", value))[0]
    below, rest = word >> 16, word & 0xFFFF
    return below + (rest > 0x8000 or (rest == 0x8000 and below & 1))


def test_bf16_ties_go_to_even() -> None:
    one = 0x3F80
    halves = np.array([(one << 16) + 0x8000, ((one + 1) << 16) + 0x8000, (one << 16) + 0x8001], np.uint32)
    assert round_bf16(halves.view(np.float32)).view(np.uint16).tolist() == [one, one + 2, one + 1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_bf16_rounding_equals_the_bit_level_definition(values: list[float]) -> None:
    result = round_bf16(np.array(values, np.float32)).view(np.uint16).tolist()
    assert result == [_bf16_bits(value) for value in values]


def test_bf16_rounding_equals_ml_dtypes_on_random_bit_patterns() -> None:
    words = np.random.default_rng(1).integers(0, 2**32, 20000, np.uint32).view(np.float32)
    words = words[~np.isnan(words)]
    assert np.array_equal(round_bf16(words).view(np.uint16), words.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_every_nan_becomes_the_quiet_nan_and_infinities_stay() -> None:
    words = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC12345, 0x7F800000, 0xFF800000], np.uint32).view(np.float32)
    assert round_bf16(words).view(np.uint16).tolist() == [0x7FC0, 0x7FC0, 0x7FC0, 0x7F80, 0xFF80]
    assert round_to(words, DType.FP32).view(np.uint32).tolist()[:3] == [0x7FC00000] * 3


def test_values_beyond_the_largest_float_become_infinite() -> None:
    assert np.isinf(round_bf16(np.array([3.4e38, 1e300]))).tolist() == [True, True]


def test_bf16_rounding_keeps_any_memory_order() -> None:
    values = np.random.default_rng(2).normal(size=(5, 7)).astype(np.float32)
    assert np.array_equal(round_bf16(values.T).view(np.uint16), round_bf16(values).view(np.uint16).T)


def test_float_sums_round_once_to_single_then_take_the_bias() -> None:
    # 2^24 + 1 is no fp32: the sum becomes 2^24 before the bias of 1 is added, and 2^24 + 1 again rounds to even.
    assert act_float(np.array([2.0**24 + 1]), np.float32(1), out=DType.FP32).item() == 2.0**24
    assert act_float(np.array([0.75]), np.float32(0.5)).astype(np.float32).item() == 1.25


@pytest.mark.parametrize(
    ("bound", "held"),
    [
        (0.1, 0.10000000149011612),
        (1e39, math.inf),
        (-1e39, -math.inf),
        (3.4028235e38, 3.4028234663852886e38),
        (127, 127),
    ],
)
def test_bounds_are_what_a_register_of_32_bits_holds(bound: float, held: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert register_bound(bound) == held and type(register_bound(bound)) is type(bound)
        clipped = act_float(np.array([3e38, np.inf]), 0.0, -math.inf, bound, DType.FP32)
    assert clipped.tolist() == np.minimum(np.array([3e38, np.inf], np.float32), np.float32(held)).tolist()


def test_float_clip_keeps_nan_and_negative_zero_is_normalised() -> None:
    result = act_float(np.array([math.nan, -5.0, 9.0, -0.0]), 0.0, 0.0, 6.0).astype(np.float32)
    assert math.isnan(result[0])
    assert result[1:].tolist() == [0.0, 6.0, 0.0]
    assert not np.signbit(act_float(np.array([-0.0]))).item()


def test_table_interpolates_between_entries() -> None:
    table = np.zeros((512, 2), np.int16)
    table[256] = (1000, 128)  # 0 <= x < 128: slope of one a step
    table[255] = (-50, 64)  # -128 <= x < 0: half a step
    table[0], table[511] = (-32768, 0), (32767, 32767)
    x = np.array([0, 1, 127, -128, -127, -126, -1, -32768, 32767], np.int16)
    # x = -127: (64 * 1 + 64) >> 7 = 1; x = -126: (128 + 64) >> 7 = 1; x = -1: (64 * 127 + 64) >> 7 = 64
    expected = [1000, 1001, 1127, -50, -49, -49, 14, -32768, 32767 + ((32767 * 127 + 64) >> 7)]
    assert table_lookup(x, table).tolist() == expected


def test_table_mode_rescales_saturates_looks_up_and_then_adds_the_zero_point() -> None:
    table = np.stack([np.arange(512) - 256, np.zeros(512)], 1).astype(np.int16)
    act = ActConfig(ActMode.TABLE, shift=1, zero_point=3, clip_max=100)
    # (512 + 0) >> 1 = 256 -> entry 258 -> 2 + 3; saturated at 32767 -> entry 511 -> 255 + 3 clipped
    result = apply_act(np.array([512, 10**6, -(10**6)]), act, 0, None, DType.INT8, table=table)
    assert result.tolist() == [5, 100, -128]
    with pytest.raises(InternalError, match="without a table"):
        apply_act(np.array([1]), act, 0, None, DType.INT8)


def test_int8_function_tables_give_the_byte_of_their_entry() -> None:
    # The published recipe: bias -128 and scale 128 put byte x at entry x (as 0..255), exactly on its base.
    values = np.arange(-128, 128)
    table = np.zeros((512, 2), np.int16)
    table[256 + values, 0] = -values
    act = ActConfig(ActMode.TABLE)
    result = apply_act(values, act, 0, 128, DType.INT8, table=table)
    assert result.tolist() == [min(127, -v) for v in values]


def _act(mode: ActMode, values: list[float], out: DType, scale: int | None = None, **fields: object) -> list[float]:
    is_float = any(isinstance(value, float) for value in values)
    acc = np.array(values, np.float64 if is_float else np.int64)
    result = apply_act(acc, ActConfig(mode, **fields), 0, scale, out, is_float)  # type: ignore[arg-type]
    return result.astype(np.float32 if out is DType.BF16 else result.dtype).tolist()


def test_abs_and_neg_reach_the_far_end_of_their_range() -> None:
    assert _act(ActMode.ABS, [-128, 127, -3], DType.INT8) == [127, 127, 3]
    assert _act(ActMode.NEG, [-128, 127, 0], DType.INT8) == [127, -127, 0]
    assert _act(ActMode.ABS, [INT32_MIN], DType.INT32) == [INT32_MAX]
    assert _act(ActMode.NEG, [-2.5, 1.0], DType.BF16) == [2.5, -1.0]


def test_leading_zeros_count_in_thirty_two_bits() -> None:
    assert _act(ActMode.CLZ, [0, 1, 2, 255, 2**30, INT32_MAX, -1], DType.INT8) == [32, 31, 30, 24, 1, 1, 0]


def test_variable_shifts_work_on_thirty_two_bits() -> None:
    assert _act(ActMode.LSL, [1, 3, -1], DType.INT32, 31) == [INT32_MIN, INT32_MIN, INT32_MIN]
    assert _act(ActMode.LSL, [5], DType.INT32, 32) == [0]
    assert _act(ActMode.LSR, [-1, -1, 8], DType.INT32, 4) == [0x0FFFFFFF, 0x0FFFFFFF, 0]
    assert _act(ActMode.LSR, [-1], DType.INT32, 0) == [-1]
    assert _act(ActMode.ASR, [-6, -5, 6, 5], DType.INT32, 2, rounding=Rounding.OFF) == [-2, -2, 1, 1]
    assert _act(ActMode.ASR, [-6, -5, 6, 10], DType.INT32, 2) == [-1, -1, 2, 3]
    assert _act(ActMode.ASR, [-6, -2, 6, 10, 2], DType.INT32, 2, rounding=Rounding.NTE) == [-2, 0, 2, 2, 0]
    assert _act(ActMode.ASR, [7, -7], DType.INT32, 0, rounding=Rounding.NTE) == [7, -7]


def test_integers_become_floats_and_back() -> None:
    assert _act(ActMode.I2F, [257, -128, 2**24 + 1], DType.FP32) == [257.0, -128.0, 2.0**24]
    assert _act(ActMode.I2F, [257], DType.BF16) == [256.0]
    halves = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]
    assert _act(ActMode.F2I, halves, DType.INT8) == [-2, -1, 0, 1, 2, 3]
    assert _act(ActMode.F2I, halves, DType.INT8, rounding=Rounding.NTE) == [-2, -2, 0, 0, 2, 2]
    assert _act(ActMode.F2I, halves, DType.INT8, rounding=Rounding.OFF) == [-2, -1, 0, 0, 1, 2]
    assert _act(ActMode.F2I, [math.inf, -math.inf, math.nan, 1e30], DType.INT16) == [32767, -32768, 0, 32767]
    assert _act(ActMode.F2I, [1.4], DType.UINT8, zero_point=128, clip_max=128) == [128]


@pytest.mark.parametrize("mode", [mode for mode in ActMode if mode not in (ActMode.CEL, ActMode.FLR, ActMode.F2I)])
@pytest.mark.parametrize("scale", [3, 2**31 - 1])
def test_single_values_give_what_arrays_give_and_arguments_are_not_written(mode: ActMode, scale: int) -> None:
    table = np.stack([np.arange(512), np.arange(512)], 1).astype(np.int16)
    act = ActConfig(mode, shift=3, zero_point=1, rounding=Rounding.NTE, sum_bits=48)
    out = DType.FP32 if mode is ActMode.I2F else DType.INT32
    acc, bias = np.array([5, -(2**40), 77]), np.array([1, 2, 3])
    acc.flags.writeable = bias.flags.writeable = False
    whole = apply_act(acc, act, bias, np.int64(scale), out, table=table)
    single = [apply_act(a, act, b, scale, out, table=table) for a, b in zip(acc, bias, strict=True)]
    assert np.array_equal(whole, np.array(single))


def test_floor_and_ceiling_keep_float() -> None:
    assert _act(ActMode.FLR, [-1.5, 1.5], DType.BF16) == [-2.0, 1.0]
    assert _act(ActMode.CEL, [-1.5, 1.25], DType.FP32) == [-1.0, 2.0]


@pytest.mark.parametrize(
    ("mode", "is_float", "out"),
    [
        (ActMode.FLR, False, DType.INT8),
        (ActMode.CLZ, True, DType.BF16),
        (ActMode.ACT, True, DType.INT8),
        (ActMode.ACT, False, DType.BF16),
        (ActMode.I2F, False, DType.INT32),
        (ActMode.F2I, True, DType.BF16),
    ],
)
def test_modes_that_cannot_give_a_type_are_refused(mode: ActMode, is_float: bool, out: DType) -> None:
    acc = np.zeros(1, np.float64 if is_float else np.int64)
    with pytest.raises(InternalError, match=mode.name):
        apply_act(acc, ActConfig(mode), 0, None, out, is_float)


def test_fixed_point_uses_all_bits_of_the_largest_multiplier() -> None:
    scales, shift = fixed_point(np.array([0.5, 0.25, 0.1]))
    assert shift == 31
    assert scales.tolist() == [2**30, 2**29, round(0.1 * 2**31)]


def test_fixed_point_steps_back_when_rounding_overflows() -> None:
    scales, shift = fixed_point(np.array([1.0 - 2.0**-40]))
    assert (scales.item(), shift) == (2**30, 30)


def test_fixed_point_of_tiny_zero_and_short_multipliers() -> None:
    scales, shift = fixed_point(np.array([2.0**-50, -(2.0**-40)]))
    assert (scales.tolist(), shift) == ([2**13, -(2**23)], 63)
    assert fixed_point(np.zeros(3))[1] == 0
    scales, shift = fixed_point(np.array([1.75]), bits=15)
    assert (scales.item(), shift) == (round(1.75 * 2**14), 14)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-12, 1e8), min_size=1, max_size=5))
def test_fixed_point_is_within_half_a_unit(multipliers: list[float]) -> None:
    scales, shift = fixed_point(np.array(multipliers))
    for scale, multiplier in zip(scales.tolist(), multipliers, strict=True):
        assert abs(scale - math.ldexp(multiplier, shift)) <= 0.5
    assert max(map(abs, scales.tolist())) < 2**31
    assert shift == 63 or max(scales.tolist()) >= 2**30 - 1


@pytest.mark.parametrize("multipliers", [[math.nan], [math.inf, 1.0], [2.0**31]])
def test_fixed_point_refuses_what_no_scale_can_hold(multipliers: list[float]) -> None:
    with pytest.raises(QuantizationError):
        fixed_point(np.array(multipliers))
