"""Softmax against float64, on rows chosen to break fixed-point sums, over any axis."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, all_codes, build, code_distance, cosine, run
from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import log_softmax, softmax
from torq_byoc.relay_patterns.composites.row_reciprocal import reciprocal_table
from torq_byoc.relay_patterns.quant_params import QuantParams

INT8, UINT8, INT16 = DType.INT8, DType.UINT8, DType.INT16
OUT = {
    INT8: QuantParams(1 / 256, -128, INT8),
    UINT8: QuantParams(1 / 255, 0, UINT8),
    INT16: QuantParams(2.0**-15, 0, INT16),
}


def float_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def rows(length: int, dtype: DType, steps: int = 40) -> np.ndarray:
    """Flat, one-hot, random and saturated rows; and every kind of row with one peak over a plateau."""
    rng = np.random.default_rng(length)
    low, high = dtype.integer_range
    found = [np.full(length, low), np.full(length, high), np.where(np.arange(length) == length // 2, high, low)]
    for depth in np.linspace(0, high - low, steps).astype(int):
        plateau = np.full(length, high - depth)
        found.append(np.where(np.arange(length) == 0, high, plateau))
        found.append(np.where(np.arange(length) < length // 2, high, plateau))
    found += [rng.integers(low, high + 1, length) for _ in range(10)]
    found += [np.clip(np.rint(rng.normal(0, high / 4, length)), low, high) for _ in range(10)]
    return np.array(found).astype(dtype.numpy)


@pytest.mark.parametrize("length", [1, 2, 3, 17, 64, 65, 200, 1000, 4096])
@pytest.mark.parametrize("dtype", [INT8, UINT8])
def test_eight_bit_rows_are_within_one_code(length: int, dtype: DType):
    for scale in (0.003, 0.0471, 0.09, 0.31):
        source = QuantParams(scale, 9, dtype)
        codes = rows(length, dtype)
        for out in OUT.values():
            actual = run([codes], [source], lambda b, x, out=out: softmax.lower(b, x, -1, out, "node"))
            wanted = out.quantize(float_softmax(source.dequantize(codes), -1))
            assert code_distance(actual, wanted) <= 1, (scale, out)


@pytest.mark.parametrize("dtype", [INT8, UINT8])
@pytest.mark.parametrize("kind", [INT8, UINT8, INT16])
def test_every_pair_of_bytes_is_correctly_rounded(dtype: DType, kind: DType):
    codes = np.stack(np.meshgrid(all_codes(dtype), all_codes(dtype)), axis=-1).reshape(-1, 2)
    for scale in (0.003, 0.0471, 0.31, 50.0):
        source = QuantParams(scale, 9, dtype)
        wanted = OUT[kind].quantize(float_softmax(source.dequantize(codes), -1))
        actual = run([codes], [source], lambda b, x: softmax.lower(b, x, -1, OUT[kind], "node"))
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize(("shape", "axis"), [((3, 2), 1), ((1, 2, 5, 6), 1), ((2, 5, 2), 0), ((2, 2, 3), 1), ((2,), 0)])
def test_pairs_along_any_axis(shape: tuple[int, ...], axis: int):
    source, out = QuantParams(0.05, -3, INT8), OUT[INT8]
    codes = np.random.default_rng(5).integers(-128, 128, shape).astype(np.int8)

    def lower(b: GraphBuilder, x: str) -> str:
        return softmax.lower(b, x, axis, out, "node")

    graph = build([shape], [source], lower)
    assert [node.op for node in graph.nodes if node.op != "reshape"] in (["matmul", "table"], ["conv2d", "table"])
    np.testing.assert_array_equal(
        run([codes], [source], lower), out.quantize(float_softmax(source.dequantize(codes), axis))
    )


@pytest.mark.parametrize("length", [2, 65, 1000])
def test_sixteen_bit_rows(length: int):
    for scale in (3e-5, 4e-4, 3e-3, 2.0):
        source = QuantParams(scale, -100, INT16)
        codes = rows(length, INT16)
        for out, limit in ((OUT[INT8], 1), (OUT[UINT8], 1), (OUT[INT16], 16)):
            actual = run([codes], [source], lambda b, x, out=out: softmax.lower(b, x, -1, out, "node"))
            wanted = out.quantize(float_softmax(source.dequantize(codes), -1))
            assert code_distance(actual, wanted) <= limit, (scale, out)


@pytest.mark.slow
@pytest.mark.parametrize("length", [*range(2, 80), 127, 255, 256, 511, 777, 2048, 3000, 8400, 20000])
def test_eight_bit_rows_of_many_lengths(length: int):
    for scale in np.geomspace(0.002, 2.0, 13):
        source = QuantParams(float(scale), -128, INT8)
        codes = rows(length, INT8, 120)
        for out in (OUT[INT8], OUT[UINT8]):
            actual = run([codes], [source], lambda b, x, out=out: softmax.lower(b, x, -1, out, "node"))
            wanted = out.quantize(float_softmax(source.dequantize(codes), -1))
            assert code_distance(actual, wanted) <= 1, (scale, out)


def test_values_that_vanish_one_by_one_count_together():
    """8,399 elements that each round to 0 of 32,767 take half of the probability."""
    source, out = QuantParams(0.09, 0, INT8), OUT[UINT8]
    codes = np.full((1, 8400), 127 - 100, np.int8)
    codes[0, 4000] = 127
    actual = run([codes], [source], lambda b, x: softmax.lower(b, x, 1, out, "node"))
    wanted = out.quantize(float_softmax(source.dequantize(codes), 1))
    assert abs(int(wanted[0, 4000]) - 255) > 100
    assert code_distance(actual, wanted) <= 1


@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 5, 3, 4), 1), ((2, 5, 3, 4), 0), ((6, 7), -2), ((4, 1, 3), 1), ((9,), 0)]
)
def test_any_axis(shape: tuple[int, ...], axis: int):
    rng = np.random.default_rng(5)
    source, out = QuantParams(0.07, -3, INT8), QuantParams(0.0052, -100, INT8)
    codes = rng.integers(-128, 128, shape).astype(np.int8)
    actual = run([codes], [source], lambda b, x: softmax.lower(b, x, axis, out, "node"))
    assert code_distance(actual, out.quantize(float_softmax(source.dequantize(codes), axis))) <= 1
    real = rng.normal(0, 3, shape).astype(BF16)
    actual = run([real], [None], lambda b, x: softmax.lower(b, x, axis, None, "node"))
    np.testing.assert_allclose(actual.astype(np.float64), float_softmax(real.astype(np.float64), axis), rtol=2.0**-6)


@pytest.mark.parametrize("length", [1, 2, 100, 1000, 8400])
def test_bf16_rows(length: int):
    rng = np.random.default_rng(length)
    x = np.concatenate([rng.normal(0, spread, (8, length)) for spread in (0.01, 1.0, 5.0, 30.0)]).astype(BF16)
    actual = run([x], [None], lambda b, n: softmax.lower(b, n, 1, None, "node"))
    truth = float_softmax(x.astype(np.float64), 1)
    assert min(cosine(a, t) for a, t in zip(actual, truth, strict=True)) >= 0.99999
    large = truth > 1e-7
    assert np.max(np.abs(actual.astype(np.float64) - truth)[large] / truth[large]) <= 2.0**-6


def test_masked_elements_get_nothing():
    x = np.array([[1.0, -1e9, 2.0, -np.inf], [0.0, 0.0, -1e30, -100.0]], BF16)
    actual = run([x], [None], lambda b, n: softmax.lower(b, n, 1, None, "node")).astype(np.float64)
    assert actual[0, 1] == actual[0, 3] == actual[1, 2] == actual[1, 3] == 0.0
    assert actual[1, 0] == 0.5


def test_long_rows_cost_a_second_table():
    def tables_of(length: int) -> int:
        source = QuantParams(0.05, 0, INT8)
        graph = build([(4, length)], [source], lambda b, x: softmax.lower(b, x, 1, OUT[INT8], "node"))
        shape = (4, length)
        return sum(node.op == "table" and graph.tensors[node.output].shape == shape for node in graph.nodes)

    assert tables_of(softmax.SINGLE_TABLE_ROW) == 1
    assert tables_of(softmax.SINGLE_TABLE_ROW + 1) == 2


def test_reciprocal_table_has_seventeen_bits():
    assert reciprocal_table().max_error < 1.2


def test_rows_beyond_the_sum_are_refused():
    builder = GraphBuilder("test")
    x = builder.input("x", (1, 70000), INT8, 0.1)
    with pytest.raises(UnsupportedOpError, match="70000"):
        softmax.lower(builder, x, 1, OUT[INT8], "Softmax_3")


@pytest.mark.parametrize("length", [1, 2, 100, 5000])
def test_log_softmax(length: int):
    rng = np.random.default_rng(length)
    x = np.concatenate([rng.normal(0, spread, (8, length)) for spread in (0.01, 1.0, 5.0, 30.0)]).astype(BF16)
    actual = run([x], [None], lambda b, n: log_softmax.lower(b, n, 1, "node")).astype(np.float64)
    shifted = x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True)
    truth = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    assert np.max(np.abs(actual - truth) / np.maximum(np.abs(truth), 0.1)) <= 2.0**-7
