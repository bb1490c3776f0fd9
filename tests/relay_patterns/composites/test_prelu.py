"""PRelu against float64, for slopes of every shape and sign."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, all_codes, build, check_on_slices, code_distance, run, ulps
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import activation, prelu
from torq_byoc.relay_patterns.quant_params import QuantParams

RNG = np.random.default_rng(11)
SLOPES = {
    "channel": RNG.uniform(0, 1, (7, 1, 1)),
    "signed": RNG.uniform(-2, 3, (7, 1, 1)),
    "steep": RNG.uniform(1, 40, (7, 1, 1)),
    "full": RNG.uniform(-1, 1, (7, 5, 8)),
    "shared": np.array([0.25]),
    "zero": np.zeros((7, 1, 1)),
}
QUANTS = [  # ratios of scales that put no code on a tie, where the last bit of a multiplier would decide
    (QuantParams(0.0310157, -7, DType.INT8), QuantParams(0.0223901, 3, DType.INT8)),
    (QuantParams(0.0203917, 255, DType.UINT8), QuantParams(0.0510019, 128, DType.UINT8)),
    (QuantParams(0.0510019, -128, DType.INT8), QuantParams(0.0103993, 127, DType.INT8)),
    (QuantParams(3.0013e-4, 0, DType.INT16), QuantParams(0.0310157, -4, DType.INT8)),
]


def float_prelu(x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, x, x * slopes)


def ops(slopes: np.ndarray, source: QuantParams | None, out: QuantParams | None) -> list[str]:
    graph = build([(2, 7, 5, 8)], [source], lambda b, n: prelu.lower(b, n, slopes, out, "node"))
    return [node.op for node in graph.nodes]


@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES.keys())
def test_quantized_follows_the_function(slopes: np.ndarray):
    for source, out in QUANTS:
        low, high = source.dtype.integer_range
        codes = RNG.integers(low, high + 1, (2, 7, 5, 8)).astype(source.dtype.numpy)
        actual = run([codes], [source], lambda b, x, out=out: prelu.lower(b, x, slopes, out, "node"))
        wanted = out.quantize(float_prelu(source.dequantize(codes), slopes))
        if slopes.shape == SLOPES["full"].shape:  # these have 16 bits
            assert code_distance(actual, wanted) <= 1
            assert np.mean(actual != wanted) < 0.005
        elif not {"weighted_max", "weighted_sum"} & set(ops(slopes, source, out)):
            np.testing.assert_array_equal(actual, wanted)


CHANNELS = np.concatenate([[0.0, 1.0, -1.0, 0.5, 1.5, 0.01, -0.25], RNG.uniform(-1, 1.5, 33)]).reshape(-1, 1, 1)
ZERO_POINTS = [-128, -127, -40, -1, 0, 1, 63, 126, 127]


def all_codes_of(source: QuantParams, channels: int) -> np.ndarray:
    return np.broadcast_to(all_codes(source.dtype), (channels, 256)).reshape(1, channels, 16, 16).copy()


@pytest.mark.parametrize("zero_point", ZERO_POINTS)
@pytest.mark.parametrize("gain", [0.61, 1.37])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
def test_every_code_is_at_most_one_off_and_no_worse_on_average(zero_point: int, gain: float, dtype: DType):
    source = QuantParams(0.0310157, zero_point + (128 if dtype is DType.UINT8 else 0), dtype)
    out = QuantParams(source.scale / gain, -9, DType.INT8)
    codes = all_codes_of(source, CHANNELS.size)
    actual = run([codes], [source], lambda b, x: prelu.lower(b, x, CHANNELS, out, "node"))
    real = float_prelu(source.dequantize(codes), CHANNELS)
    wanted = out.quantize(real)
    assert code_distance(actual, wanted) <= 1
    assert np.mean(actual != wanted) < 0.01
    exact = np.clip(real / out.scale + out.zero_point, -128, 127)
    assert np.square(actual - exact).mean() <= 1.02 * np.square(wanted - exact).mean()


@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.1, 0.2, 0.25, -0.5, 1.0, 1.75])
@pytest.mark.parametrize("zero_point", [-128, -7, 0, 127])
def test_a_slope_of_small_numbers_is_exact(alpha: float, zero_point: int):
    source, out = QuantParams(0.0310157, zero_point, DType.INT8), QuantParams(0.0223901, 3, DType.INT8)
    codes = all_codes_of(source, 1)
    attributes = {"function": "leaky_relu", "alpha": alpha}
    actual = run([codes], [source], lambda b, x: activation.lower(b, x, out=out, origin="node", **attributes))
    np.testing.assert_array_equal(actual, out.quantize(float_prelu(source.dequantize(codes), np.array(alpha))))


def test_int8_takes_one_pass_or_two():
    out = QuantParams(0.0223901, 3, DType.INT8)

    def at(zero_point: int) -> QuantParams:
        return QuantParams(0.0310157, zero_point, DType.INT8)

    for name in ("channel", "shared", "zero"):
        assert ops(SLOPES[name], at(0), out) == ["weighted_max"]
        assert ops(SLOPES[name], at(-7), out) == ["act", "weighted_sum"]
        assert ops(SLOPES[name], at(-128), out) == ["act"], "nothing lies below zero"
        assert ops(SLOPES[name], at(127), out) == ["act"], "nothing lies above it"
        assert ops(SLOPES[name], at(-7), at(-7)) == ["act", "maximum"], "exact, and no more passes"
    assert ops(np.array([0.7, 1.5, -0.2] * 2 + [0.0]).reshape(7, 1, 1), at(0), out) == ["weighted_max"]


def test_slopes_that_small_weights_miss_keep_their_precision():
    slopes = np.array([0.0039, -0.0041, 0.0042] * 2 + [0.0038]).reshape(7, 1, 1)
    source, out = QuantParams(0.0310157, 0, DType.INT8), QuantParams(0.0123901, 3, DType.INT8)
    codes = all_codes_of(source, 7)
    assert ops(slopes, source, out)[-1] != "weighted_max"
    actual = run([codes], [source], lambda b, x: prelu.lower(b, x, slopes, out, "node"))
    assert np.mean(actual != out.quantize(float_prelu(source.dequantize(codes), slopes))) < 0.01


@pytest.mark.parametrize("zero_point", [0, 12])
@pytest.mark.parametrize("shape", [(2, 7, 5, 8), (1, 7, 1, 1), (3, 7)])
def test_on_slices(zero_point: int, shape: tuple[int, ...]):
    source, out = QuantParams(0.0310157, zero_point, DType.INT8), QuantParams(0.0223901, 3, DType.UINT8)
    slopes = RNG.uniform(-1, 1.5, (7, *(1,) * (len(shape) - 2)))
    codes = RNG.integers(-128, 128, shape).astype(np.int8)
    check_on_slices([codes], [source], lambda b, x: prelu.lower(b, x, slopes, out, "node"))


def test_int16_in_and_out_keeps_steep_slopes():
    source, out = QuantParams(1.0003e-4, 0, DType.INT16), QuantParams(3.0011e-3, 0, DType.INT16)
    codes = RNG.integers(-32768, 32768, (2, 7, 5, 8)).astype(np.int16)
    slopes = SLOPES["steep"]
    actual = run([codes], [source], lambda b, x: prelu.lower(b, x, slopes, out, "node"))
    np.testing.assert_array_equal(actual, out.quantize(float_prelu(source.dequantize(codes), slopes)))


def test_int16_with_a_zero_point_is_exact():
    source, out = QuantParams(1.0003e-4, 2000, DType.INT16), QuantParams(1.3007e-4, -5, DType.INT16)
    codes = RNG.integers(-32768, 32768, (2, 7, 5, 8)).astype(np.int16)
    slopes = SLOPES["channel"]
    actual = run([codes], [source], lambda b, x: prelu.lower(b, x, slopes, out, "node"))
    np.testing.assert_array_equal(actual, out.quantize(float_prelu(source.dequantize(codes), slopes)))


@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES.keys())
def test_bf16(slopes: np.ndarray):
    x = RNG.normal(0, 3, (2, 7, 5, 8)).astype(BF16)
    actual = run([x], [None], lambda b, n: prelu.lower(b, n, slopes, None, "node"))
    assert ulps(actual, float_prelu(x.astype(np.float64), slopes), 2.0**-20) <= 1.7


def test_cheap_forms_are_used_in_bf16():
    assert ops(SLOPES["channel"], None, None) == ["mul", "maximum"]
    assert ops(SLOPES["steep"], None, None) == ["mul", "minimum"]
