"""Convolutions against a brute-force sum, whole and cut into tiles and slice parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels.infra import (
    CONFIG,
    assert_close_bf16,
    brute_rescale,
    one_node,
    random_rescale,
    random_values,
    reference,
    run,
    run_scalar,
    split,
    whole,
)
from torq_byoc.kernels.conv2d import Conv2d
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType


def out_size(size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> int:
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def brute_conv(x, w, strides, dilations, pads, groups, pad_value, out_hw, interleaved=False) -> np.ndarray:
    """Direct sums, one output position at a time."""
    n, c, h, width = x.shape
    o, per_group, kh, kw = w.shape
    wide = np.float64 if x.dtype.kind == "V" or w.dtype.kind == "V" else np.int64
    x, w = x.astype(wide), w.astype(wide)
    acc = np.zeros((n, o, *out_hw), wide)
    for oy, ox, i, j in itertools.product(range(out_hw[0]), range(out_hw[1]), range(kh), range(kw)):
        y = oy * strides[0] + i * dilations[0] - pads[0]
        column = ox * strides[1] + j * dilations[1] - pads[1]
        inside = 0 <= y < h and 0 <= column < width
        pixel = x[:, :, y, column] if inside else np.full((n, c), pad_value, wide)
        for g in range(groups):
            ours = slice(g, None, groups) if interleaved else slice(g * (o // groups), (g + 1) * (o // groups))
            acc[:, ours, oy, ox] += pixel[:, g * per_group : (g + 1) * per_group] @ w[ours, :, i, j].T
    return acc


class Case:
    """A convolution with data, and what it must give."""

    def __init__(
        self,
        x,
        o,
        kernel,
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        groups=1,
        types=(DType.INT8, DType.INT8, DType.INT8),
        pad_value=0,
        seed=0,
        **more,
    ) -> None:
        rng = np.random.default_rng(seed)
        data, weight, out = types
        hw = tuple(out_size(x[2 + a], kernel[a], strides[a], dilations[a], pads[a], pads[a + 2]) for a in (0, 1))
        self.x = random_values(rng, x, data)
        self.w = random_values(rng, (o, x[1] // groups, *kernel), weight)
        self.shape = (x[0], o, *hw)
        attrs = {"strides": strides, "dilations": dilations, "pads": pads, "groups": groups, "pad_value": pad_value}
        attrs.update(more)
        swapped = bool(more.get("interleaved", False))
        self.acc = brute_conv(self.x, self.w, strides, dilations, pads, groups, pad_value, hw, swapped)
        rescale = random_rescale(rng, o, 1, float(np.abs(self.acc).max()) + 1, out)
        if data is DType.INT16:
            rescale = type(rescale)(**{**rescale.__dict__, "sum_bits": 48})
        self.rescale, self.out = rescale, out
        self.graph: OpGraph = one_node("conv2d", [(x, data), self.w], self.shape, out, attrs, rescale)
        self.node = self.graph.nodes[0]
        self.steps = Conv2d().tile_steps(self.graph, self.node, CONFIG)

    @property
    def expected(self) -> np.ndarray:
        if self.out.is_float:
            return (self.acc + self.rescale.bias.reshape(1, -1, 1, 1)).astype(np.float32).astype(self.out.numpy)
        return brute_rescale(self.acc, self.rescale, self.out)

    def check(self, actual: np.ndarray) -> None:
        if self.out.is_float:
            assert_close_bf16(actual, self.expected)
        else:
            np.testing.assert_array_equal(actual, self.expected)

    def check_everything(self) -> None:
        assert Conv2d().unsupported(self.graph, self.node, CONFIG) is None
        self.check(reference(self.graph, [self.x, self.w]))
        self.check(run(self.graph, [self.x], whole(self.shape)))
        n, o, height, width = self.shape
        channels = max(self.steps[1], o // 2 // self.steps[1] * self.steps[1])
        columns = width if self.steps[3] == 0 else -(-width // 2)
        rows = -(-height // 2)
        tiles = {
            "rows": split(self.shape, (n, o, rows, width), 1, self.steps[1]),
            "channels": split(self.shape, (1, channels, height, width), 2, 1),
            "single rows": split(self.shape, (n, o, 1, width), 1, self.steps[1]),
        }
        if self.steps[3]:
            tiles["columns"] = split(self.shape, (n, o, rows, columns), 2, 1)
            tiles["column parts"] = split(self.shape, (n, o, height, width), 3, 1)
        for name, cut in tiles.items():
            for whole_inputs in (False, True):
                actual = run(self.graph, [self.x], cut, whole_inputs=whole_inputs)
                assert np.array_equal(actual.view(np.uint8), self._bits(actual)), f"{name}, whole input {whole_inputs}"
        self.check(run(self.graph, [self.x], tiles["rows"], output_phases=(2, 2)))

    def _bits(self, actual: np.ndarray) -> np.ndarray:
        if self.out.is_float:
            assert_close_bf16(actual, self.expected)
            return actual.view(np.uint8)
        return self.expected.view(np.uint8)


INT = (DType.INT8, DType.INT8, DType.INT8)

GEOMETRIES = {
    "3x3 same": dict(x=(1, 5, 7, 9), o=9, kernel=(3, 3), pads=(1, 1, 1, 1)),
    "1x1": dict(x=(2, 13, 5, 6), o=6, kernel=(1, 1)),
    "1x1 one channel": dict(x=(1, 1, 4, 3), o=3, kernel=(1, 1)),
    "1x1 stride 2": dict(x=(1, 6, 7, 8), o=5, kernel=(1, 1), strides=(2, 2)),
    "3x3 valid": dict(x=(1, 3, 8, 7), o=4, kernel=(3, 3)),
    "3x3 stride 2": dict(x=(1, 3, 12, 14), o=8, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "3x3 stride 2 odd": dict(x=(1, 3, 11, 13), o=8, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "3x3 stride 2 end padding": dict(x=(1, 3, 12, 14), o=8, kernel=(3, 3), strides=(2, 2), pads=(0, 0, 1, 1)),
    "3x3 stride 2 valid": dict(x=(1, 3, 12, 14), o=8, kernel=(3, 3), strides=(2, 2)),
    "7x7 stride 2": dict(x=(1, 3, 17, 18), o=5, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    "5x4 asymmetric": dict(x=(1, 2, 9, 10), o=7, kernel=(5, 4), pads=(2, 1, 0, 2)),
    "2x2": dict(x=(1, 4, 6, 5), o=4, kernel=(2, 2), pads=(0, 0, 1, 1)),
    "left pad only": dict(x=(1, 2, 6, 7), o=4, kernel=(3, 3), pads=(0, 1, 0, 0)),
    "pads beyond the border": dict(x=(1, 2, 6, 7), o=4, kernel=(3, 3), pads=(2, 1, 2, 0)),
    "causal": dict(x=(1, 4, 1, 20), o=4, kernel=(1, 4), pads=(0, 3, 0, 0)),
    "dilated": dict(x=(1, 3, 11, 12), o=4, kernel=(3, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
    "dilated 3 valid": dict(x=(1, 3, 11, 12), o=4, kernel=(3, 2), dilations=(3, 3)),
    "mixed strides": dict(x=(1, 3, 9, 10), o=4, kernel=(3, 3), strides=(2, 1), pads=(1, 1, 1, 1)),
    "mixed strides x": dict(x=(1, 3, 9, 10), o=4, kernel=(3, 3), strides=(1, 2), pads=(1, 1, 1, 1)),
    "patches": dict(x=(1, 3, 12, 16), o=8, kernel=(4, 4), strides=(4, 4)),
    "stride 3": dict(x=(1, 3, 12, 15), o=4, kernel=(5, 5), strides=(3, 3), pads=(2, 2, 1, 1)),
    "stride 4 ragged": dict(x=(1, 2, 13, 14), o=4, kernel=(3, 3), strides=(4, 4)),
    "stride 4 alexnet": dict(x=(1, 3, 24, 24), o=8, kernel=(11, 11), strides=(4, 4), pads=(2, 2, 2, 2)),
    "stride 3 by 2": dict(x=(1, 2, 12, 14), o=4, kernel=(3, 3), strides=(3, 2), pads=(1, 1, 1, 1)),
    "1-D large stride": dict(x=(1, 1, 1, 160), o=5, kernel=(1, 31), strides=(1, 16)),
    "groups of 4": dict(x=(1, 12, 5, 6), o=12, kernel=(3, 3), pads=(1, 1, 1, 1), groups=3),
    "groups of 8": dict(x=(1, 6, 5, 6), o=24, kernel=(3, 3), pads=(1, 1, 1, 1), groups=3),
    "groups of 6": dict(x=(2, 6, 5, 6), o=18, kernel=(1, 1), groups=3),
    "groups interleaved": dict(x=(2, 12, 5, 6), o=21, kernel=(3, 3), pads=(1, 1, 1, 1), groups=3, interleaved=True),
    "groups interleaved with a rest": dict(x=(1, 6, 5, 7), o=57, kernel=(1, 1), groups=3, interleaved=True),
    "groups with a rest": dict(x=(1, 6, 5, 7), o=57, kernel=(1, 1), groups=3),
    "groups interleaved in wide blocks": dict(x=(1, 8, 4, 4), o=40, kernel=(1, 1), groups=2, interleaved=True),
    "groups interleaved stride 2": dict(
        x=(1, 4, 8, 8), o=12, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), groups=2, interleaved=True
    ),
    "multiplier interleaved": dict(x=(1, 3, 5, 6), o=6, kernel=(3, 3), pads=(1, 1, 1, 1), groups=3, interleaved=True),
    "multiplier 2": dict(x=(1, 3, 5, 6), o=6, kernel=(3, 3), pads=(1, 1, 1, 1), groups=3),
    "single pixel": dict(x=(1, 20, 1, 1), o=11, kernel=(1, 1)),
    "kernel is the input": dict(x=(1, 3, 5, 4), o=8, kernel=(5, 4), strides=(2, 2)),
    "wide blocks": dict(x=(1, 3, 5, 5), o=43, kernel=(3, 3), pads=(1, 1, 1, 1)),
    "wide blocks of groups": dict(x=(1, 4, 5, 5), o=32, kernel=(3, 3), pads=(1, 1, 1, 1), groups=2),
    "one column": dict(x=(1, 3, 9, 1), o=4, kernel=(3, 1), pads=(1, 0, 1, 0)),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometry_in_every_cut(name: str) -> None:
    Case(**GEOMETRIES[name], pad_value=-7).check_everything()


def test_a_small_plane_takes_blocks_of_more_channels() -> None:
    blocks = [Case(**GEOMETRIES[f"wide blocks{which}"]).steps[1] for which in ("", " of groups")]
    assert blocks == [8, 8]
    assert Case((1, 33, 3, 3), 64, (1, 1)).steps[1] == 16


@pytest.mark.parametrize(("extent", "channels", "block"), [(56, 256, 16), (56, 64, 8), (56, 32, 4), (16, 64, 4)])
def test_a_large_plane_is_cut_into_rows_that_fill_short_vectors(extent: int, channels: int, block: int) -> None:
    """56 x 56 pixels are 49 vectors of 64 with 4 channels, or 196 of 16 with 16: the same.  But two rows of them are
    seven vectors of 16, or two of 64, of which an eighth is left over.  A plane that is not cut keeps the small block.
    """
    assert Case((1, 64, extent, extent), channels, (1, 1)).steps[1] == block
    assert Case((1, 64, 1, extent * extent), channels, (1, 1)).steps[1] == 4  # a single row


def test_macs_count_the_products_of_one_group() -> None:
    case = Case((2, 12, 5, 6), 8, (3, 3), pads=(1, 1, 1, 1), groups=4)
    assert Conv2d().macs(case.graph, case.node) == 2 * 8 * 5 * 6 * 3 * 9


def test_a_tile_reads_the_channels_of_its_groups_only() -> None:
    case = Case((1, 12, 9, 9), 24, (3, 3), pads=(1, 1, 1, 1), groups=3)
    region = Conv2d().input_region(case.graph, case.node, 0, Region((0, 8, 4, 0), (1, 8, 2, 9)))
    assert region == Region((0, 4, 3, 0), (1, 4, 4, 9))


def test_wide_blocks_leave_room_on_a_small_machine() -> None:
    case = Case((1, 33, 3, 3), 64, (1, 1))
    small = NpuConfig(lram_bytes=4 * 1024)
    assert Conv2d().tile_steps(case.graph, case.node, small)[1] == 4


@pytest.mark.parametrize(
    ("types", "pad_value"),
    [
        ((DType.UINT8, DType.INT8, DType.UINT8), 128),
        ((DType.UINT8, DType.INT8, DType.INT8), 255),
        ((DType.INT16, DType.INT8, DType.INT16), 0),
        ((DType.INT8, DType.INT8, DType.INT16), -128),
        ((DType.BF16, DType.BF16, DType.BF16), 0),
    ],
)
def test_types(types: tuple[DType, ...], pad_value: int) -> None:
    Case((1, 7, 6, 9), 6, (3, 3), (2, 2), (1, 1, 1, 1), types=types, pad_value=pad_value).check_everything()
    Case((1, 8, 5, 9), 6, (3, 3), (1, 1), (1, 1, 1, 1), groups=2, types=types, pad_value=pad_value).check_everything()


@pytest.mark.parametrize("name", ["3x3 stride 2 end padding", "stride 3", "groups of 6", "5x4 asymmetric"])
def test_scalar_interpreter_agrees(name: str) -> None:
    case = Case(**GEOMETRIES[name], pad_value=3)
    case.check(run_scalar(case.graph, [case.x], whole(case.shape)))


@pytest.mark.parametrize(
    ("x", "kernel", "strides", "pads"),
    [
        ((1, 2, 5, 6), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((1, 2, 13, 14), (4, 4), (4, 4), (2, 2, 2, 2)),
        ((1, 2, 9, 9), (3, 3), (1, 1), (0, 4, 0, 4)),
    ],
)
def test_borders_beyond_the_machine_are_named_and_remedied(x, kernel, strides, pads) -> None:
    case_args = dict(x=x, o=4, kernel=kernel, strides=strides, pads=pads)
    attrs = {"strides": strides, "dilations": (1, 1), "pads": pads, "groups": 1, "pad_value": 5}
    hw = tuple(out_size(x[2 + a], kernel[a], strides[a], 1, pads[a], pads[a + 2]) for a in (0, 1))
    rng = np.random.default_rng(1)
    data, w = random_values(rng, x, DType.INT8), random_values(rng, (4, x[1], *kernel), DType.INT8)
    graph = one_node("conv2d", [(x, DType.INT8), w], (1, 4, *hw), DType.INT32, attrs)
    reason = Conv2d().unsupported(graph, graph.nodes[0], CONFIG)
    assert reason is not None and "pad" in reason, case_args
    top, left, bottom, right = Conv2d().explicit_pads(graph, graph.nodes[0])
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=5)
    plain = {**attrs, "pads": (0, 0, 0, 0)}
    graph = one_node("conv2d", [(padded.shape, DType.INT8), w], (1, 4, *hw), DType.INT32, plain)
    assert Conv2d().unsupported(graph, graph.nodes[0], CONFIG) is None
    expected = brute_conv(data, w, strides, (1, 1), pads, 1, 5, hw)
    np.testing.assert_array_equal(run(graph, [padded], whole((1, 4, *hw))), expected)
    np.testing.assert_array_equal(reference(graph, [padded, w]), expected)
