"""reduce over every kind of axes against numpy in wide integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.infra import CONFIG, assert_close_bf16, brute_rescale, random_values
from tests.kernels.infra_elementwise import check_everywhere, cut_tiles, cycles, run, single
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType

RNG = np.random.default_rng(15)
AXES = [(0,), (1,), (3,), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3), (1, 2, 3)]


def reduced_shape(shape, axes, keepdims):
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", [DType.INT8, DType.INT16])
def test_rescaled_sums(kind, axes, keepdims):
    x = random_values(RNG, (3, 4, 5, 6), kind)
    rescale = Rescale(np.array([35], np.int32), np.array([1_000_003], np.int32), 25, -2, sum_bits=48)
    shape = reduced_shape(x.shape, axes, keepdims)
    total = x.astype(np.int64).sum(axis=axes, keepdims=keepdims).reshape(shape)
    case = single("reduce", [x], shape, DType.INT8, rescale=rescale, kind="sum", axes=axes, keepdims=keepdims)
    check_everywhere(*case, brute_rescale(total, rescale, DType.INT8))


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT32, DType.BF16, DType.FP32])
@pytest.mark.parametrize("fold", ["max", "min"])
def test_extrema(kind, axes, fold):
    x = random_values(RNG, (2, 5, 3, 7), kind)
    shape = reduced_shape(x.shape, axes, True)
    case = single("reduce", [x], shape, kind, kind=fold, axes=axes, keepdims=True)
    check_everywhere(*case, getattr(x, fold)(axis=axes, keepdims=True))


@pytest.mark.parametrize("axes", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("fold", ["argmax", "argmin"])
def test_index_of_the_first_extremum(fold, axes):
    x = RNG.integers(-3, 4, (4, 5, 6)).astype(np.int8)
    shape = reduced_shape(x.shape, axes, False)
    want = getattr(x.reshape(*shape, -1) if axes != (1,) else x.transpose(0, 2, 1), fold)(axis=-1)
    case = single("reduce", [x], shape, DType.INT32, kind=fold, axes=axes)
    check_everywhere(*case, want.astype(np.int32))


def test_channel_entries_follow_kept_axes():
    x = random_values(RNG, (2, 4, 3, 5), DType.INT8)
    rescale = Rescale(np.arange(4, dtype=np.int32) * 9, np.array([3, 70, 500, 2], np.int32), 6, axis=1)
    total = x.astype(np.int64).sum(axis=(2, 3))
    case = single("reduce", [x], (2, 4), DType.INT8, rescale=rescale, kind="sum", axes=(2, 3))
    check_everywhere(*case, brute_rescale(total, rescale, DType.INT8))


def test_bf16_sums_accumulate_wide():
    x = (RNG.normal(0, 1, (3, 300, 5)) * 2.0 ** RNG.integers(-6, 6, (3, 300, 5))).astype(ml_dtypes.bfloat16)
    graph, node, values = single("reduce", [x], (3, 5), DType.BF16, kind="sum", axes=(1,))
    want = x.astype(np.float64).sum(axis=1).astype(np.float32).astype(ml_dtypes.bfloat16)
    for tiles in (cut_tiles((3, 5), (1, 1)), cut_tiles((3, 5), (0, 0))):
        assert_close_bf16(run(graph, node, values, tiles), want)


def test_float_maximum_with_bias_keeps_to_the_width_of_act():
    x = random_values(RNG, (6, 64), DType.BF16)
    rescale = Rescale(np.array([0.25], np.float32))
    case = single("reduce", [x], (64,), DType.BF16, rescale=rescale, kind="max", axes=(0,))
    want = (x.max(axis=0).astype(np.float32) + np.float32(0.25)).astype(ml_dtypes.bfloat16)
    check_everywhere(*case, want)
    assert cycles(*case) == 64 // 8 * 6


def test_inner_reduction_gathers_four_rows_a_cycle():
    case = single("reduce", [np.zeros((64, 50), np.int8)], (64,), DType.INT8, kind="max", axes=(1,))
    assert cycles(*case) == 64 // 4 * 50


def test_a_full_reduction_takes_an_element_a_cycle():
    case = single("reduce", [np.zeros((3, 50), np.int8)], (1, 1), DType.INT8, kind="max", axes=(0, 1), keepdims=True)
    assert cycles(*case) == 150


def test_refusals_give_a_reason():
    def reason(kind, shape=(70_000,), fold="sum"):
        graph, node, _ = single(
            "reduce", [np.zeros(shape, kind)], (1,), DType.INT32, kind=fold, axes=(0,), keepdims=True
        )
        return kernel_for("reduce").unsupported(graph, node, CONFIG)

    assert "65536" in reason(np.int8)
    assert "float32" in reason(np.float32, (4,))
    assert "prod" in reason(np.int8, (4,), "prod")
    assert reason(np.int8, (65_536,)) is None
