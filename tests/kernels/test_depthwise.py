"""Depthwise convolutions: the conv2d cases with one channel a group."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.infra import CONFIG, node_cycles, run_scalar, whole
from tests.kernels.test_conv2d import Case
from torq_byoc.kernels.conv_tile import conv_shape
from torq_byoc.npu_model.dtypes import DType

GEOMETRIES = {
    "3x3": dict(x=(2, 9, 6, 7), kernel=(3, 3), pads=(1, 1, 1, 1)),
    "two channels": dict(x=(1, 2, 5, 5), kernel=(3, 3), pads=(1, 1, 1, 1)),
    "3x3 stride 2": dict(x=(1, 9, 10, 12), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "3x3 stride 2 odd": dict(x=(1, 5, 9, 13), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "5x5 stride 2 end padding": dict(x=(1, 5, 12, 14), kernel=(5, 5), strides=(2, 2), pads=(1, 1, 2, 2)),
    "5x5 stride 2": dict(x=(1, 8, 11, 10), kernel=(5, 5), strides=(2, 2), pads=(2, 2, 2, 2)),
    "3x3 stride 2 end padding": dict(x=(1, 6, 10, 12), kernel=(3, 3), strides=(2, 2), pads=(0, 0, 1, 1)),
    "dilated": dict(x=(1, 5, 9, 9), kernel=(3, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
    "stride 3": dict(x=(1, 5, 9, 12), kernel=(3, 3), strides=(3, 3), pads=(1, 1, 1, 1)),
    "1-D": dict(x=(1, 7, 1, 33), kernel=(1, 31), pads=(0, 15, 0, 15)),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometry_in_every_cut(name: str) -> None:
    channels = GEOMETRIES[name]["x"][1]
    case = Case(o=channels, groups=channels, pad_value=-9, **GEOMETRIES[name])
    assert conv_shape(case.graph, case.node, CONFIG).depthwise
    case.check_everything()


@pytest.mark.parametrize(
    "types",
    [
        (DType.UINT8, DType.INT8, DType.UINT8),
        (DType.INT16, DType.INT8, DType.INT16),
        (DType.BF16, DType.BF16, DType.BF16),
    ],
)
def test_types(types: tuple[DType, ...]) -> None:
    Case((1, 6, 6, 9), 6, (3, 3), (2, 2), (1, 1, 1, 1), groups=6, types=types).check_everything()


def test_scalar_interpreter_agrees() -> None:
    case = Case((1, 6, 5, 6), 6, (3, 3), (2, 2), (0, 0, 1, 1), groups=6, pad_value=-3)
    case.check(run_scalar(case.graph, [case.x], whole(case.shape)))


def test_weights_are_packed_by_four_channels() -> None:
    case = Case((1, 6, 5, 6), 6, (3, 3), (1, 1), (1, 1, 1, 1), groups=6)
    from torq_byoc.kernels.kernel import kernel_for

    weights, pairs = kernel_for("conv2d").constants(case.graph, case.node, CONFIG)
    assert weights.data.shape == (2, 36) and weights.step == pairs.step == 4
    packed = weights.data.view(np.int8).reshape(2, 3, 3, 4)
    np.testing.assert_array_equal(packed[1, :, :, 1], case.w[5, 0])
    assert not packed[1, :, :, 2:].any()


@pytest.mark.parametrize("kernel", [3, 4, 5])
@pytest.mark.parametrize("pads", [(0, 0, 1, 1), (0, 0, 0, 0)])
def test_stride_2_with_a_border_on_one_side_in_tiles_of_columns(kernel: int, pads: tuple[int, ...]) -> None:
    case = Case((1, 6, 14, 16), 6, (3, kernel), (2, 2), pads, groups=6, pad_value=-9)
    case.check_everything()


def test_a_group_of_four_costs_four_loads_a_row() -> None:
    case = Case((1, 8, 16, 16), 8, (3, 3), (1, 1), (1, 1, 1, 1), groups=8)
    assert node_cycles(case.graph) == 2 * (16 * 16 // 64) * max(3 * max(3, 4), 16)


def test_stride_2_loads_a_phase_at_a_time_where_the_columns_are_whole() -> None:
    even = Case((1, 8, 32, 32), 8, (3, 3), (2, 2), (1, 1, 1, 1), groups=8)
    late = Case((1, 8, 32, 32), 8, (3, 3), (2, 2), (0, 0, 1, 1), groups=8)
    odd = Case((1, 8, 31, 31), 8, (3, 3), (2, 2), (1, 1, 1, 1), groups=8)
    assert node_cycles(even.graph) == node_cycles(late.graph) == 2 * (16 * 16 // 64) * 3 * 2 * 4
    assert node_cycles(odd.graph) == 2 * (16 * 16 // 64) * 3 * 3 * 4
