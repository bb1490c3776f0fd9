"""Cycles of whole nodes equal the closed forms of the hardware reference, section 4.3 (V, A of section 2)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import torq_byoc.kernels.conv2d
import torq_byoc.kernels.matmul
import torq_byoc.kernels.pooling  # noqa: F401  (registers the kernels)
from tests.kernels.infra import node_cycles, one_node, random_rescale
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.dtypes import DType

I8, I16, BF = DType.INT8, DType.INT16, DType.BF16
WIDTHS = {I8: (64, 16), I16: (32, 8), BF: (32, 8)}
"""V and A by type of the activations; weights are int8, or bf16 with bf16 activations."""


def weights(shape: tuple[int, ...], data: DType) -> np.ndarray:
    return np.ones(shape, BF.numpy if data is BF else np.int8)


def conv(n: int, c: int, o: int, hw: tuple[int, int], k: int, data: DType, groups: int = 1, stride: int = 1) -> OpGraph:
    pad = k // 2
    out = tuple((size - 1) // stride + 1 for size in hw)
    attrs = {
        "strides": (stride, stride),
        "dilations": (1, 1),
        "pads": (pad,) * 4,
        "groups": groups,
        "pad_value": 0,
    }
    rescale = random_rescale(np.random.default_rng(0), o, 1, 1e4, data)
    return one_node(
        "conv2d", [((n, c, *hw), data), weights((o, c // groups, k, k), data)], (n, o, *out), data, attrs, rescale
    )


@pytest.mark.parametrize("data", [I8, I16, BF])
@pytest.mark.parametrize(
    ("n", "c", "o", "hw", "k"),
    [(1, 64, 64, (56, 56), 1), (1, 32, 48, (28, 32), 3), (2, 3, 8, (32, 17), 7), (1, 2, 16, (24, 24), 1)],
)
def test_conv2d_stride_1(n: int, c: int, o: int, hw: tuple[int, int], k: int, data: DType) -> None:
    v, a = WIDTHS[data]
    expected = n * math.ceil(o / 4) * math.ceil(hw[0] * hw[1] / v) * max(c * k * k, 4 * v // a)
    assert node_cycles(conv(n, c, o, hw, k, data)) == expected


@pytest.mark.parametrize(("side", "block", "lanes"), [(14, 16, 16), (28, 16, 16), (7, 4, 64), (3, 16, 16)])
def test_conv2d_wider_blocks_where_a_plane_is_no_multiple_of_64(side: int, block: int, lanes: int) -> None:
    expected = 256 // block * math.ceil(side * side / lanes) * 128
    assert node_cycles(conv(1, 128, 256, (side, side), 1, I8)) == expected
    assert expected <= 256 // 4 * math.ceil(side * side / 64) * 128


def test_conv2d_remainder_of_output_channels_is_a_second_task() -> None:
    whole, rest = node_cycles(conv(1, 8, 8, (16, 16), 3, I8)), node_cycles(conv(1, 8, 10, (16, 16), 3, I8))
    assert rest - whole == 16 * 16 // 64 * 8 * 9


def test_conv2d_stride_2_costs_the_output_plane() -> None:
    assert node_cycles(conv(1, 16, 8, (32, 32), 3, I8, stride=2)) == 2 * (16 * 16 // 64) * 16 * 9


@pytest.mark.parametrize("data", [I8, I16, BF])
@pytest.mark.parametrize(("n", "c", "hw", "k"), [(1, 32, (56, 56), 3), (1, 16, (14, 15), 5), (2, 8, (20, 20), 7)])
def test_depthwise_stride_1(n: int, c: int, hw: tuple[int, int], k: int, data: DType) -> None:
    v, a = WIDTHS[data]
    loads = k * max(k, 4 * math.ceil(k / 3))
    expected = n * math.ceil(c / 4) * math.ceil(hw[0] * hw[1] / v) * max(loads, 4 * v // a)
    assert node_cycles(conv(n, c, c, hw, k, data, groups=c)) == expected


def product(m: int, k: int, n: int, data: DType, per_column: bool) -> OpGraph:
    rescale = random_rescale(np.random.default_rng(0), n if per_column else 1, 1 if per_column else None, 1e4, data)
    return one_node("matmul", [((m, k), data), weights((k, n), data)], (m, n), data, {}, rescale)


@pytest.mark.parametrize("data", [I8, I16, BF])
@pytest.mark.parametrize(("inputs", "outputs"), [(1024, 1024), (256, 512), (8, 256), (1280, 64)])
def test_fully_connected(inputs: int, outputs: int, data: DType) -> None:
    p = WIDTHS[data][0]
    a_item = 8 if data.is_float else 4
    expected = math.ceil(outputs / p) * max(inputs, p // a_item)
    assert node_cycles(product(1, inputs, outputs, data, per_column=True)) == expected


@pytest.mark.parametrize("data", [I8, I16, BF])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 256, 256), (128, 64, 192), (4, 8, 64)])
def test_matmul_uses_all_four_groups(m: int, k: int, n: int, data: DType) -> None:
    """A quarter of the reference kernel's M * ceil(N / V) * max(K, V / A) once K covers ACT."""
    v, a = WIDTHS[data]
    expected = m // 4 * math.ceil(n / v) * max(k, 4 * v // a)
    assert node_cycles(product(m, k, n, data, per_column=False)) == expected
    if k >= 4 * v // a:
        assert 4 * expected == m * math.ceil(n / v) * max(k, v // a)


def pool(op: str, c: int, hw: tuple[int, int], k: int, stride: int, data: DType) -> OpGraph:
    pad = k // 2 if stride == 1 else 0
    out = hw if stride == 1 else ((hw[0] - k) // 2 + 1, (hw[1] - k) // 2 + 1)
    attrs = {"kernel": (k, k), "strides": (stride, stride), "pads": (pad,) * 4, "dilations": (1, 1), "pad_value": 0}
    return one_node(op, [((1, c, *hw), data)], (1, c, *out), data, attrs)


@pytest.mark.parametrize("data", [I8, BF])
@pytest.mark.parametrize(("c", "hw", "k"), [(16, (28, 28), 3), (8, (15, 20), 3)])
def test_max_pool_stride_1(c: int, hw: tuple[int, int], k: int, data: DType) -> None:
    v, a = WIDTHS[data]
    expected = c * math.ceil(hw[0] * hw[1] / v) * max(k * k, v // a)
    assert node_cycles(pool("maxpool", c, hw, k, 1, data)) == expected


def test_max_pool_2x2_stride_2() -> None:
    assert node_cycles(pool("maxpool", 16, (32, 32), 2, 2, I8)) == 16 * (16 * 16 // 64) * 4


def test_large_max_pool_beats_the_published_kernel() -> None:
    """Hardware reference 11.2: 384 x ceil(300 / 64) x 5 x 6 = 57,600 cycles with the published kernel."""
    assert node_cycles(pool("maxpool", 384, (15, 20), 5, 1, I8)) == 384 * 5 * 25 < 57_600


def test_conv1d_of_the_published_experiment() -> None:
    """Hardware reference 11.3: kernel 127, stride 64 as frames of 64 costs 368,640 cycles on one slice."""
    x, w = ((1, 1, 1, 80_000), BF), np.ones((288, 1, 1, 127), BF.numpy)
    attrs = {"strides": (1, 64), "dilations": (1, 1), "pads": (0,) * 4, "groups": 1, "pad_value": 0}
    assert node_cycles(one_node("conv2d", [x, w], (1, 288, 1, 1249), BF, attrs)) == 368_640
