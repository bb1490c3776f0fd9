"""Sums over whole planes in two steps: which are divided, and that values do not change."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.infra import graph_cycles, node_cycles
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.separable_sums import separate_sums

CONFIG = NpuConfig()
ONE = Rescale(np.array([-900], np.int32), np.array([1 << 20], np.int32), 25, zero_point=4, clip_min=-120)
CHANNELS = Rescale(np.arange(6, dtype=np.int32) * 100, np.arange(9, 15, dtype=np.int32) << 16, 25, axis=1)


def reduced(shape, dtype=DType.INT8, axes=(2, 3), keepdims=True, kind="sum", rescale: Rescale | None = ONE) -> OpGraph:
    builder = GraphBuilder("sums")
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    out = kept if keepdims else [size for axis, size in enumerate(shape) if axis not in axes]
    attrs = {"kind": kind, "axes": axes, "keepdims": keepdims}
    x = builder.input("x", shape, dtype)
    builder.output(builder.emit("reduce", [x], out, DType.INT8, attrs=attrs, rescale=rescale))
    return builder.finish()


def pooled(shape, kernel, rescale: Rescale = ONE) -> OpGraph:
    builder = GraphBuilder("sums")
    attrs = {"kernel": kernel, "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "pad_value": 0}
    out = (*shape[:2], *(size - k + 1 for size, k in zip(shape[2:], kernel, strict=True)))
    x = builder.input("x", shape, DType.INT8)
    builder.output(builder.emit("sumpool", [x], out, DType.INT8, attrs=attrs, rescale=rescale))
    return builder.finish()


def ops_after(graph: OpGraph) -> list[str]:
    changed = separate_sums(graph, CONFIG)
    info = graph.tensors["x"]
    low, high = (-128, 128) if info.dtype is not DType.UINT8 else (0, 256)
    for x in (
        np.random.default_rng(1).integers(low, high, info.shape),
        np.full(info.shape, low),
        np.full(info.shape, high - 1),
    ):
        feed = {"x": x.astype(info.dtype.numpy)}
        before, after = evaluate(graph, feed)[graph.outputs[0]], evaluate(changed, feed)[graph.outputs[0]]
        np.testing.assert_array_equal(after, before)
    return [node.op for node in changed.nodes]


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("rescale", [ONE, CHANNELS])
def test_whole_planes(dtype: DType, keepdims: bool, rescale: Rescale) -> None:
    assert ops_after(reduced((2, 6, 13, 11), dtype, keepdims=keepdims, rescale=rescale)) == ["reduce"] * 2
    assert ops_after(pooled((2, 6, 7, 8), (7, 8), rescale)) == ["reduce"] * 2


@pytest.mark.parametrize(
    "graph",
    [
        reduced((1, 6, 4, 4)),
        reduced((1, 6, 300, 9)),
        reduced((1, 6, 9, 9), DType.INT16),
        reduced((1, 6, 9, 9), axes=(1, 2)),
        reduced((1, 6, 9, 9), kind="max"),
        reduced((6, 9, 9), axes=(1, 2)),
        pooled((1, 6, 9, 9), (9, 8)),
    ],
    ids=["small", "beyond int16", "wide data", "channels too", "maximum", "no image", "several windows"],
)
def test_what_stays(graph: OpGraph) -> None:
    before = [node.op for node in graph.nodes]
    assert ops_after(graph) == before


def test_cycles_are_those_of_rows_and_of_a_gather() -> None:
    """64 planes of 13 x 13: 13 rows each, then 13 columns of 64 gathered lanes; before, 169 of them."""
    graph = reduced((1, 64, 13, 13))
    changed = separate_sums(graph, CONFIG)
    assert node_cycles(graph) == 169 * 64 // 4
    assert graph_cycles(changed) == 64 * 13 + 13 * 64 // 4
