"""mul against 64-bit products and a rescale written out here."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.infra import CONFIG
from tests.kernels.infra_elementwise import check_everywhere, single
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType

RNG = np.random.default_rng(3)


def extremes(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Random numbers of the whole range, ends included."""
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    flat = values.reshape(-1)
    flat[0], flat[-1] = info.min, info.max
    return values


def rescaled(acc: np.ndarray, bias: int, scale: int, shift: int, zero_point: int, dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    total = (acc.astype(object) + bias) * scale
    rounded = (total + (1 << (shift - 1))) >> shift
    return np.clip(rounded + zero_point, info.min, info.max).astype(dtype)


SHAPES = [
    ((1, 3, 5, 7), (1, 3, 5, 7)),
    ((2, 3, 5, 7), (1, 3, 1, 1)),
    ((1, 4, 6), (6,)),
    ((3, 1, 9), (1, 4, 1)),
    ((2, 1, 1, 70), (2, 5, 3, 1)),
    ((130,), ()),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize(
    ("first", "second"), [("int8", "int8"), ("int16", "int8"), ("uint8", "int16"), ("int16", "int16")]
)
def test_integer_products_are_exact_under_every_broadcast(a, b, first, second):
    x, y = extremes(a, first), np.asarray(extremes(b or (1,), second).reshape(b))
    shape = np.broadcast_shapes(a, b)
    rescale = Rescale(np.array([-77], np.int32), np.array([1_234_567], np.int32), 33, zero_point=5, sum_bits=48)
    case = single("mul", [x, y], shape, DType.INT8, rescale=rescale)
    expected = rescaled(x.astype(np.int64) * y.astype(np.int64), -77, 1_234_567, 33, 5, np.int8)
    check_everywhere(*case, expected)


def test_bf16_products_round_once_to_nearest_even():
    x = RNG.normal(0, 30, (2, 3, 17)).astype(ml_dtypes.bfloat16)
    y = RNG.normal(0, 1e-3, (1, 3, 1)).astype(ml_dtypes.bfloat16)
    expected = (x.astype(np.float32) * y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    check_everywhere(*single("mul", [x, y], (2, 3, 17), DType.BF16), expected)


def test_channel_scales_follow_their_axis_in_every_tile():
    x, y = extremes((2, 6, 3, 5), np.int8), extremes((2, 6, 3, 5), np.int8)
    scales, biases = RNG.integers(1, 1 << 20, 6), RNG.integers(-500, 500, 6)
    rescale = Rescale(biases.astype(np.int32), scales.astype(np.int32), 24, axis=1)
    expected = np.empty(x.shape, np.int8)
    for c in range(6):
        product = x[:, c].astype(np.int64) * y[:, c]
        expected[:, c] = rescaled(product, int(biases[c]), int(scales[c]), 24, 0, np.int8)
    check_everywhere(*single("mul", [x, y], x.shape, DType.INT8, rescale=rescale), expected)


@pytest.mark.parametrize("b", [(2, 6, 3, 20), (2, 6, 1, 1), (1, 1, 20), (1,)])
@pytest.mark.parametrize(
    ("first", "zero", "second"),
    [("int8", -128, "uint8"), ("int8", 127, "int8"), ("uint8", 255, "uint8"), ("uint8", 3, "int16")],
)
def test_a_zero_point_of_the_first_factor(first, zero, second, b):
    x, y = extremes((2, 6, 3, 20), first), extremes(b, second)
    rescale = Rescale(np.array([61], np.int32), np.array([1_234_567], np.int32), 27, zero_point=-9, sum_bits=48)
    case = single("mul", [x, y], x.shape, DType.INT8, rescale=rescale, zero_point=zero)
    product = (x.astype(np.int64) - zero) * y.astype(np.int64)
    check_everywhere(*case, rescaled(product, 61, 1_234_567, 27, -9, np.int8))


@pytest.mark.parametrize("a", [(2, 6, 3, 1), (1, 6, 1, 1), (6, 1, 20), (1,)])
def test_a_zero_point_of_a_factor_that_repeats(a):
    x, y = extremes(a, np.int8), extremes((2, 6, 3, 20), np.uint8)
    rescale = Rescale(np.array([61], np.int32), np.array([1_234_567], np.int32), 25)
    case = single("mul", [x, y], y.shape, DType.INT16, rescale=rescale, zero_point=-77)
    product = (x.astype(np.int64) + 77) * y.astype(np.int64)
    check_everywhere(*case, rescaled(product, 61, 1_234_567, 25, 0, np.int16))


def test_a_zero_point_beyond_the_factors_type_is_refused():
    graph, node, _ = single("mul", [np.zeros(4, np.int8)] * 2, (4,), DType.INT8, zero_point=128)
    assert "128" in kernel_for("mul").unsupported(graph, node, CONFIG)


@pytest.mark.parametrize(("first", "second"), [("float32", "float32"), ("int32", "int32"), ("int8", "bfloat16")])
def test_products_the_multiplier_lacks_are_refused_with_a_reason(first, second):
    arrays = [np.zeros(4, DType(kind).numpy) for kind in (first, second)]
    graph, node, _ = single("mul", arrays, (4,), DType(first))
    assert first in kernel_for("mul").unsupported(graph, node, CONFIG)
