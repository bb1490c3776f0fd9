"""Layer, instance and group normalisation against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, code_distance, cosine, run
from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites.layer_norm import Norm, lower, mean_column
from torq_byoc.relay_patterns.quant_params import QuantParams

# shape, trailing axes, shape of gamma and beta
CASES = [
    ((2, 5, 768), 1, (768,)),
    ((3, 4, 7, 9), 2, (4, 1, 1)),
    ((2, 6, 8, 8), 3, (6, 8, 8)),
    ((3, 100), 1, None),
    ((2, 3, 1), 1, (1,)),
]
SPREADS = [(0.0, 1.0), (10.0, 1.0), (0.0, 0.01), (-3.0, 100.0)]


def make(shape: tuple[int, ...] | None, axes: int, rng: np.random.Generator) -> Norm:
    if shape is None:
        return Norm(axes)
    return Norm(axes, rng.uniform(0.2, 2.0, shape), rng.normal(0, 1, shape))


def exact(x: np.ndarray, norm: Norm) -> np.ndarray:
    axes = tuple(range(x.ndim - norm.axes, x.ndim))
    normal = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + norm.epsilon)
    return normal * (1.0 if norm.gamma is None else norm.gamma) + (0.0 if norm.beta is None else norm.beta)


@pytest.mark.parametrize(("shape", "axes", "parameters"), CASES)
def test_bf16(shape: tuple[int, ...], axes: int, parameters: tuple[int, ...] | None):
    rng = np.random.default_rng(0)
    norm = make(parameters, axes, rng)
    for mean, spread in SPREADS:
        x = rng.normal(mean, spread, shape).astype(BF16)
        actual = run([x], [None], lambda b, n: lower(b, n, norm, None, "node"))
        truth = exact(x.astype(np.float64), norm)
        assert np.abs(actual.astype(np.float64) - truth).max() <= 2.0**-6 * max(1.0, np.abs(truth).max())
        assert cosine(actual, truth) >= 0.9999


@pytest.mark.parametrize(("shape", "axes", "parameters"), CASES)
def test_quantized_is_within_one_code(shape: tuple[int, ...], axes: int, parameters: tuple[int, ...] | None):
    rng = np.random.default_rng(1)
    norm = make(parameters, axes, rng)
    for source in (QuantParams(0.03, -7, DType.INT8), QuantParams(0.5, 0, DType.UINT8)):
        low, high = source.dtype.integer_range
        codes = np.clip(rng.normal(40, 25, shape), low, high).astype(source.dtype.numpy)
        truth = exact(source.dequantize(codes), norm)
        out = QuantParams(max(float(np.abs(truth).max()), 0.1) / 127, 3, DType.INT8)
        actual = run([codes], [source], lambda b, n, out=out: lower(b, n, norm, out, "node"))
        assert code_distance(actual, out.quantize(truth)) <= 1


@pytest.mark.parametrize("length", [1, 2, 3, 7, 768, 1000, 4096])
def test_mean_column_sums_to_one(length: int):
    column = mean_column(length).astype(np.float64)
    assert column.shape == (length, 1)
    assert abs(column.sum() - 1.0) <= 2.0**-9 / length
    assert column.max() - column.min() <= 2.0**-7 / length


def test_sixteen_bit_codes_are_refused():
    builder = GraphBuilder("test")
    x = builder.input("x", (2, 8), DType.INT16, 0.01)
    with pytest.raises(UnsupportedOpError, match="Norm_1"):
        lower(builder, x, Norm(1), QuantParams(0.1, 0, DType.INT8), "Norm_1")
