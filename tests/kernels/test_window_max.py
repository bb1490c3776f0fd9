"""Windows along one axis against brute force, on every axis, in tiles and slice parts."""

from __future__ import annotations

import numpy as np
import pytest

import torq_byoc.kernels.window_max  # noqa: F401  (registers the kernel)
from tests.kernels.infra import (
    CONFIG,
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
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.dtypes import DType


def brute(x: np.ndarray, axis: int, kernel: int, dilation: int, before: int, out: int, pad: float) -> np.ndarray:
    """One output at a time along the axis."""
    moved = np.moveaxis(x.astype(np.float64), axis, 0)
    lines = []
    for position in range(out):
        taps = [position - before + tap * dilation for tap in range(kernel)]
        inside = [moved[tap] if 0 <= tap < len(moved) else np.full(moved.shape[1:], pad) for tap in taps]
        lines.append(np.max(inside, axis=0))
    return np.moveaxis(np.array(lines), 0, axis)


def graph_of(
    shape: tuple[int, ...],
    axis: int,
    kernel: int,
    pads: tuple[int, int],
    dilation: int = 1,
    dtype: DType = DType.INT8,
    rescale: Rescale | None = None,
) -> OpGraph:
    pad = float("-inf") if dtype.is_float else dtype.integer_range[0]
    attrs = {"axis": axis, "kernel": kernel, "dilation": dilation, "before": pads[0], "pad_value": pad}
    out = list(shape)
    out[axis] += sum(pads) - (kernel - 1) * dilation
    return one_node("window_max", [(shape, dtype)], tuple(out), dtype, attrs, rescale)


CASES = {
    "rows of NHWC": dict(shape=(2, 9, 5, 7), axis=1, kernel=5, pads=(2, 2)),
    "columns of NHWC": dict(shape=(2, 5, 9, 7), axis=2, kernel=5, pads=(2, 2)),
    "innermost": dict(shape=(2, 5, 9), axis=2, kernel=3, pads=(1, 1)),
    "outermost": dict(shape=(9, 3, 5), axis=0, kernel=4, pads=(0, 3)),
    "border only behind": dict(shape=(1, 8, 3, 70), axis=1, kernel=3, pads=(0, 2)),
    "valid and dilated": dict(shape=(1, 3, 11, 6), axis=2, kernel=3, pads=(0, 0), dilation=4),
    "one element": dict(shape=(1, 1, 1, 5), axis=1, kernel=3, pads=(1, 1)),
}


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT16, DType.BF16])
@pytest.mark.parametrize("name", CASES)
def test_every_cut_equals_brute_force(name: str, dtype: DType) -> None:
    graph = graph_of(**CASES[name], dtype=dtype)
    node, shape = graph.nodes[0], graph.tensors[graph.nodes[0].output].shape
    x = random_values(np.random.default_rng(5), CASES[name]["shape"], dtype)
    assert kernel_for("window_max").unsupported(graph, node, CONFIG) is None
    attrs = node.attrs
    axis, pad = attrs["axis"], attrs["pad_value"]
    expected = brute(x, axis, attrs["kernel"], attrs["dilation"], attrs["before"], shape[axis], pad)
    expected = expected.astype(dtype.numpy)
    np.testing.assert_array_equal(reference(graph, [x]), expected)
    np.testing.assert_array_equal(run_scalar(graph, [x], whole(shape)), expected)
    for cut in range(len(shape)):
        halves = [-(-extent // 2) if at == cut else extent for at, extent in enumerate(shape)]
        for slices in range(len(shape)):
            tiles = split(shape, halves, slices, 1)
            np.testing.assert_array_equal(run(graph, [x], tiles), expected)
            np.testing.assert_array_equal(run(graph, [x], tiles, whole_inputs=True), expected)


def test_requantizes_with_one_rescale() -> None:
    rng = np.random.default_rng(2)
    rescale = random_rescale(rng, 1, None, 128.0, DType.INT8)
    graph = graph_of((1, 6, 4, 9), 1, 3, (1, 1), rescale=rescale)
    x = random_values(rng, (1, 6, 4, 9), DType.INT8)
    folded = brute(x, 1, 3, 1, 1, 6, -128).astype(np.int64)
    np.testing.assert_array_equal(run(graph, [x], whole(x.shape)), brute_rescale(folded, rescale, DType.INT8))


def test_lanes_are_full_for_channel_last_data() -> None:
    graph = graph_of((1, 15, 20, 384), 1, 5, (2, 2))
    assert node_cycles(graph) == 15 * 20 * 384 // 64 * 5


def test_names_what_it_cannot_do() -> None:
    several = Rescale(np.arange(7, dtype=np.int32), np.ones(7, np.int32), axis=3)
    graph = graph_of((1, 5, 5, 7), 1, 3, (1, 1), rescale=several)
    assert "rescale" in str(kernel_for("window_max").unsupported(graph, graph.nodes[0], CONFIG))
    graph = graph_of((1, 5, 5, 7), 1, 2, (3, 0))
    assert "border" in str(kernel_for("window_max").unsupported(graph, graph.nodes[0], CONFIG))
