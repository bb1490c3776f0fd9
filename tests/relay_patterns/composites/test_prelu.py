"""PRelu against float64, for slopes of every shape and sign."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, build, code_distance, run, ulps
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import prelu
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


@pytest.mark.parametrize("slopes", SLOPES.values(), ids=SLOPES.keys())
def test_quantized_is_exact(slopes: np.ndarray):
    for source, out in QUANTS:
        low, high = source.dtype.integer_range
        codes = RNG.integers(low, high + 1, (2, 7, 5, 8)).astype(source.dtype.numpy)
        actual = run([codes], [source], lambda b, x, out=out: prelu.lower(b, x, slopes, out, "node"))
        wanted = out.quantize(float_prelu(source.dequantize(codes), slopes))
        if slopes.shape == SLOPES["full"].shape:  # these have 16 bits
            assert code_distance(actual, wanted) <= 1
            assert np.mean(actual != wanted) < 0.005
        else:
            np.testing.assert_array_equal(actual, wanted)


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


def test_cheap_forms_are_used():
    def ops(slopes: np.ndarray) -> list[str]:
        graph = build([(2, 7, 5, 8)], [None], lambda b, n: prelu.lower(b, n, slopes, None, "node"))
        return [node.op for node in graph.nodes]

    assert ops(SLOPES["channel"]) == ["mul", "maximum"]
    assert ops(SLOPES["steep"]) == ["mul", "minimum"]
