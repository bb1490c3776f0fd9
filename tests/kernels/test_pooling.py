"""Max and sum pools against brute-force windows, whole and cut into tiles and slice parts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import torq_byoc.kernels.pooling  # noqa: F401  (registers the kernels)
from tests.kernels.infra import (
    CONFIG,
    assert_close_bf16,
    brute_rescale,
    node_cycles,
    one_node,
    random_rescale,
    random_values,
    reference,
    run,
    run_scalar,
    split,
    whole,
)
from torq_byoc.kernels.graph import Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType


def brute_pool(op, x, kernel, strides, dilations, pads, pad_value, out_hw) -> np.ndarray:
    """Direct windows, one output position at a time; Python-exact for integers."""
    wide = np.float64 if x.dtype.kind == "V" else np.int64
    h, w = x.shape[2:]
    out = np.zeros((*x.shape[:2], *out_hw), wide)
    for oy, ox in itertools.product(range(out_hw[0]), range(out_hw[1])):
        window = []
        for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
            y = oy * strides[0] + i * dilations[0] - pads[0]
            column = ox * strides[1] + j * dilations[1] - pads[1]
            inside = 0 <= y < h and 0 <= column < w
            window.append(x[:, :, y, column].astype(wide) if inside else np.full(x.shape[:2], pad_value, wide))
        out[:, :, oy, ox] = np.max(window, axis=0) if op == "maxpool" else np.sum(window, axis=0)
    return out


class Case:
    """A pool with data, and what it must give."""

    def __init__(
        self,
        op,
        x,
        kernel,
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        data=DType.INT8,
        out=None,
        pad_value=None,
        axis=None,
        rescale=True,
    ) -> None:
        rng = np.random.default_rng(3)
        self.op, self.out = op, out or data
        if pad_value is None:
            lowest = float("-inf") if data.is_float else data.integer_range[0]
            pad_value = lowest if op == "maxpool" else 0
        hw = tuple(
            (x[2 + a] + pads[a] + pads[a + 2] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1 for a in (0, 1)
        )
        self.x, self.shape = random_values(rng, x, data), (*x[:2], *hw)
        self.acc = brute_pool(op, self.x, kernel, strides, dilations, pads, pad_value, hw)
        entries = {None: 1, 1: x[1], 2: hw[0] * hw[1]}[axis]
        self.rescale = None
        if rescale:
            reach = float(np.abs(self.acc).max()) + 1
            self.rescale = random_rescale(rng, entries, axis, reach, self.out)
        attrs = {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads, "pad_value": pad_value}
        self.graph = one_node(op, [(x, data)], self.shape, self.out, attrs, self.rescale)
        self.node, self.kernel = self.graph.nodes[0], kernel_for(op)

    @property
    def expected(self) -> np.ndarray:
        if self.out.is_float:
            bias = 0 if self.rescale is None else self.rescale.bias.reshape(1, -1, 1, 1)
            return (self.acc.astype(np.float32) + np.float32(bias)).astype(self.out.numpy)
        if self.rescale is None:
            return np.clip(self.acc, *self.out.integer_range).astype(self.out.numpy)
        rescale, acc = self.rescale, self.acc
        if rescale.axis == 2:
            rescale, acc = replace(rescale, axis=2), acc.reshape(*acc.shape[:2], -1)
        return brute_rescale(acc, rescale, self.out).reshape(self.shape)

    def check(self, actual: np.ndarray) -> None:
        if self.out.is_float:
            assert_close_bf16(actual, self.expected)
        else:
            np.testing.assert_array_equal(actual, self.expected)

    def check_everything(self) -> None:
        assert self.kernel.unsupported(self.graph, self.node, CONFIG) is None
        steps = self.kernel.tile_steps(self.graph, self.node, CONFIG)
        n, c, height, width = self.shape
        self.check(reference(self.graph, [self.x]))
        self.check(run(self.graph, [self.x], whole(self.shape)))
        rows, columns = -(-height // 2), width if steps[3] == 0 else -(-width // 2)
        cuts = [
            split(self.shape, (n, c, rows, width), 1, 1),
            split(self.shape, (1, -(-c // 2), height, columns), 2, 1),
        ]
        for cut in cuts:
            self.check(run(self.graph, [self.x], cut))
            self.check(run(self.graph, [self.x], cut, whole_inputs=True))
        self.check(run(self.graph, [self.x], cuts[0], output_phases=(2, 2)))


GEOMETRIES = {
    "2x2 stride 2": dict(x=(2, 3, 8, 10), kernel=(2, 2), strides=(2, 2)),
    "3x3 stride 2": dict(x=(1, 5, 12, 14), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "3x3 same": dict(x=(1, 5, 7, 6), kernel=(3, 3), pads=(1, 1, 1, 1)),
    "5x5 same": dict(x=(1, 3, 9, 11), kernel=(5, 5), pads=(2, 2, 2, 2)),
    "3x3 valid": dict(x=(1, 5, 7, 6), kernel=(3, 3)),
    "2x3 uneven rows": dict(x=(1, 2, 7, 9), kernel=(2, 3), pads=(1, 1, 0, 1)),
    "3x3 stride 3": dict(x=(1, 4, 9, 12), kernel=(3, 3), strides=(3, 3)),
    "2x2 stride 4": dict(x=(1, 4, 10, 13), kernel=(2, 2), strides=(4, 4)),
    "5x5 stride 3": dict(x=(1, 4, 11, 14), kernel=(5, 5), strides=(3, 3)),
    "1x3 stride (1, 3)": dict(x=(1, 4, 3, 12), kernel=(1, 3), strides=(1, 3)),
    "dilated": dict(x=(1, 4, 9, 10), kernel=(3, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
    "global": dict(x=(2, 70, 7, 6), kernel=(7, 6), strides=(7, 6)),
    "border on the right": dict(x=(1, 5, 10, 12), kernel=(3, 3), strides=(2, 2), pads=(0, 0, 1, 1)),
    "border on the left": dict(x=(2, 3, 7, 8), kernel=(3, 3), pads=(1, 1, 0, 0)),
    "border on the left, stride 2": dict(x=(1, 3, 9, 12), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 0, 0)),
    "border of 2 on the left": dict(x=(1, 3, 6, 9), kernel=(2, 3), pads=(0, 2, 0, 0)),
    "uneven border": dict(x=(1, 3, 8, 9), kernel=(5, 5), strides=(2, 2), pads=(0, 2, 3, 1)),
    "dilated, border on the right": dict(x=(1, 2, 9, 9), kernel=(3, 3), pads=(0, 0, 2, 2), dilations=(2, 2)),
    "one column": dict(x=(1, 3, 6, 1), kernel=(3, 3), strides=(2, 2), pads=(0, 0, 1, 2)),
    "two columns": dict(x=(1, 3, 2, 3), kernel=(3, 3), strides=(2, 2), pads=(0, 0, 1, 2)),
    "1x1": dict(x=(1, 4, 3, 5), kernel=(1, 1)),
    "1x1 stride 2": dict(x=(1, 4, 5, 7), kernel=(1, 1), strides=(2, 2)),
}


ONE_SIDED = [name for name in GEOMETRIES if "border" in name or name.endswith(("one column", "two columns"))]


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("op", ["maxpool", "sumpool"])
def test_geometry_in_every_cut(op: str, name: str) -> None:
    Case(op, **GEOMETRIES[name]).check_everything()
    if name not in ONE_SIDED:  # such borders are left out, so they must be what leaves no trace
        Case(op, **GEOMETRIES[name], pad_value=17, axis=1).check_everything()
    Case(op, **GEOMETRIES[name], axis=1, data=DType.BF16 if op == "maxpool" else DType.UINT8).check_everything()


@pytest.mark.parametrize("name", [name for name in GEOMETRIES if name not in ONE_SIDED])
def test_entries_for_every_pixel(name: str) -> None:
    Case("sumpool", **GEOMETRIES[name], axis=2).check_everything()


@pytest.mark.parametrize("data", [DType.UINT8, DType.INT16, DType.BF16])
@pytest.mark.parametrize("op", ["maxpool", "sumpool"])
def test_types(op: str, data: DType) -> None:
    Case(op, (1, 5, 7, 9), (3, 3), pads=(1, 1, 1, 1), data=data).check_everything()
    Case(op, (1, 5, 7, 9), (3, 3), (2, 2), pads=(1, 1, 1, 1), data=data, rescale=False).check_everything()


@pytest.mark.parametrize("name", ["3x3 stride 2", "3x3 stride 3", "5x5 stride 3", "global", *ONE_SIDED])
def test_scalar_interpreter_agrees(name: str) -> None:
    case = Case("sumpool", **GEOMETRIES[name], axis=1 if name in ONE_SIDED else 2)
    case.check(run_scalar(case.graph, [case.x], whole(case.shape)))


def test_a_border_at_one_side_costs_its_own_taps() -> None:
    case = Case("maxpool", (1, 8, 46, 46), (3, 3), (2, 2), (0, 0, 1, 1))
    whole_rows, last_column = -(-(22 * 23 + 22) // 64), -(-(22 * 23 + 1) // 64)
    assert node_cycles(case.graph) == 8 * (9 * whole_rows + 6 * last_column)


def test_float_maximum_with_clip_runs_on_the_lanes_of_act() -> None:
    x = random_values(np.random.default_rng(0), (1, 2, 4, 8), DType.BF16)
    attrs = {"kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0)}
    plain = one_node("maxpool", [((1, 2, 4, 8), DType.BF16)], (1, 2, 4, 8), DType.BF16, attrs)
    relu = Rescale(np.zeros(1, np.float32), clip_min=0.0)
    clipped = one_node("maxpool", [((1, 2, 4, 8), DType.BF16)], (1, 2, 4, 8), DType.BF16, attrs, relu)
    np.testing.assert_array_equal(run(plain, [x], whole((1, 2, 4, 8))), x)
    np.testing.assert_array_equal(run(clipped, [x], whole((1, 2, 4, 8))), np.maximum(x, 0))
    assert node_cycles(plain) == node_cycles(clipped) == 2 * 4 * 8 // 8


def test_global_pool_gathers_channels() -> None:
    case = Case("sumpool", (1, 256, 7, 7), (7, 7), rescale=False, out=DType.INT16)
    assert node_cycles(case.graph) == 256 * 49 // 4


@pytest.mark.parametrize(
    ("x", "kernel", "strides", "pads", "value"),
    [
        ((1, 2, 6, 6), (3, 3), (2, 2), (0, 0, 1, 1), -127),
        ((1, 2, 6, 6), (5, 5), (1, 1), (0, 0, 3, 3), -128),
        ((1, 2, 6, 6), (3, 3), (1, 1), (0, 0, 3, 3), -128),
        ((1, 2, 9, 9), (3, 3), (3, 3), (1, 1, 1, 1), -128),
    ],
    ids=["a value of its own", "too many columns", "columns of border alone", "folded stride"],
)
def test_borders_beyond_the_machine_are_named_and_remedied(x, kernel, strides, pads, value) -> None:
    case = Case("maxpool", x, kernel, strides, pads, pad_value=value)
    reason = case.kernel.unsupported(case.graph, case.node, CONFIG)
    assert reason is not None and "pad" in reason
    top, left, bottom, right = case.kernel.explicit_pads(case.graph, case.node)
    padded = np.pad(case.x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)
    attrs = {**case.node.attrs, "pads": (0, 0, 0, 0)}
    graph = one_node("maxpool", [(padded.shape, DType.INT8)], case.shape, DType.INT8, attrs, case.rescale)
    assert case.kernel.unsupported(graph, graph.nodes[0], CONFIG) is None
    case.check(run(graph, [padded], whole(case.shape)))
