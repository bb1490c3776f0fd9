"""LRN against ONNX's definition in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, build, code_distance, cosine, run
from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites.lrn import Lrn, lower, refusals
from torq_byoc.relay_patterns.quant_params import QuantParams

CASES = [
    Lrn(5),
    Lrn(5, 1e-2, 0.75, 2.0),
    Lrn(4, 0.5, 0.75, 1.0),
    Lrn(3, 1.0, 0.5, 0.1),
    Lrn(1, 0.1),
    Lrn(7, 0.0),
]
SOURCES = [QuantParams(0.9, -7, DType.INT8), QuantParams(0.02, 128, DType.UINT8), QuantParams(0.05, -128, DType.INT8)]


def onnx_lrn(x: np.ndarray, lrn: Lrn) -> np.ndarray:
    channels = x.shape[1]
    y = np.empty_like(x)
    for c in range(channels):
        first = max(0, c - math.floor((lrn.size - 1) / 2))
        last = min(channels - 1, c + math.ceil((lrn.size - 1) / 2))
        square_sum = (x[:, first : last + 1] ** 2).sum(axis=1)
        y[:, c] = x[:, c] / (lrn.bias + lrn.alpha / lrn.size * square_sum) ** lrn.beta
    return y


def worst_distance(lrn: Lrn, source: QuantParams) -> int:
    """The largest difference in codes from ONNX's definition, rounded once."""
    rng = np.random.default_rng(3)
    low, high = source.dtype.integer_range
    codes = rng.integers(low, high + 1, (2, 9, 3, 5)).astype(source.dtype.numpy)
    codes[0, :, 0], codes[1, :, 1] = high, low
    real = onnx_lrn(source.dequantize(codes), lrn)
    out = QuantParams(float(np.abs(real).max()) / 127, 3, DType.INT8)
    actual = run([codes], [source], lambda b, x: lower(b, x, lrn, out, "node"))
    return int(code_distance(actual, out.quantize(real)))


@pytest.mark.parametrize("lrn", CASES)
def test_quantized_is_within_one_code(lrn: Lrn):
    for source in SOURCES:
        assert worst_distance(lrn, source) <= 1, source


def test_codes_of_a_mild_normalization_are_almost_all_exact():
    """A wrong code in an early layer moves half the codes behind it: 16 bits of the gain itself miss hundreds."""
    source, lrn = QuantParams(1.0, -128, DType.INT8), Lrn(5, 1e-6)
    codes = np.random.default_rng(8).integers(-128, 128, (1, 64, 96, 96)).astype(np.int8)
    real = onnx_lrn(source.dequantize(codes), lrn)
    out = QuantParams(float(np.abs(real).max()) / 255, -128, DType.INT8)
    actual = run([codes], [source], lambda b, x: lower(b, x, lrn, out, "node"))
    assert np.count_nonzero(actual != out.quantize(real)) <= 30


@pytest.mark.parametrize(("zero", "factors"), [(-128, {"uint8"}), (0, {"int8"}), (5, {"int8", "int16"})])
def test_squares_of_8_bit_codes_are_products_of_the_narrowest_factors(zero: int, factors: set[str]):
    source, out = QuantParams(1.0, zero, DType.INT8), QuantParams(1.0, 0, DType.INT8)
    graph = build([(1, 8, 4, 4)], [source], lambda b, x: lower(b, x, Lrn(5, 1e-6), out, "node"))
    square = next(node for node in graph.nodes if node.op == "mul")
    assert {graph.tensors[name].dtype.value for name in square.inputs} == factors
    assert graph.tensors[square.output].dtype is DType.UINT16


@pytest.mark.parametrize("lrn", CASES)
def test_bf16(lrn: Lrn):
    x = np.random.default_rng(4).normal(0, 5, (2, 9, 3, 5))
    x[:, 0] *= 40
    x = x.astype(BF16)
    actual = run([x], [None], lambda b, n: lower(b, n, lrn, None, "node"))
    truth = onnx_lrn(x.astype(np.float64), lrn)
    assert cosine(actual, truth) >= 0.9999
    np.testing.assert_allclose(actual.astype(np.float64), truth, rtol=2.0**-6)


def test_three_axes():
    x = np.random.default_rng(4).normal(0, 5, (2, 9, 6)).astype(BF16)
    actual = run([x], [None], lambda b, n: lower(b, n, Lrn(3), None, "node"))
    assert actual.shape == (2, 9, 6)
    assert cosine(actual, onnx_lrn(x.astype(np.float64), Lrn(3))) >= 0.9999


def test_denominators_that_reach_zero_are_refused():
    builder = GraphBuilder("test")
    x = builder.input("x", (1, 4, 2, 2), DType.BF16)
    with pytest.raises(UnsupportedOpError, match="LRN_1"):
        lower(builder, x, Lrn(3, bias=0.0), None, "LRN_1")


@pytest.mark.parametrize(
    "lrn",
    [Lrn(3, 3e38), Lrn(3, bias=1e-38), Lrn(3, math.inf), Lrn(3, bias=math.inf), Lrn(3, beta=math.nan), Lrn(3, -1.0)],
)
def test_numbers_that_no_integer_holds_are_refused(lrn: Lrn):
    (reason,) = refusals(lrn, QuantParams(0.05, 3, DType.INT8))
    assert "bias is less than half a unit" in reason or "no finite number" in reason


def test_the_smallest_bias_that_is_not_refused_is_within_one_code():
    source = QuantParams(0.05, 0, DType.INT8)
    taken = [lrn for power in range(40) if not refusals(lrn := Lrn(3, 1.0, 0.5, 2.0**-power), source)]
    assert 20 < len(taken) < 40
    assert worst_distance(taken[-1], source) <= 1
