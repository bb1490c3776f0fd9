"""Folds behind a block transposition: which are, that values do not change, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.infra import graph_cycles
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.block_reductions import reduce_in_blocks
from torq_byoc.relay_patterns.separable_sums import separate_sums

CONFIG = NpuConfig()
ONE = Rescale(np.array([-900], np.int32), np.array([1 << 18], np.int32), 25, zero_point=4, clip_min=-120)
BLOCKS = ["transpose", "reduce", "reshape"]


def reduced(shape, axes, kind="sum", dtype=DType.INT8, keepdims=True) -> OpGraph:
    builder = GraphBuilder("folds")
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    out = kept if keepdims else [size for axis, size in enumerate(shape) if axis not in axes]
    attrs = {"kind": kind, "axes": axes, "keepdims": keepdims}
    index = kind.startswith("arg")
    rescale = ONE if kind == "sum" and not dtype.is_float else None
    result = DType.INT32 if index else dtype
    builder.output(
        builder.emit("reduce", [builder.input("x", shape, dtype)], out, result, attrs=attrs, rescale=rescale)
    )
    return builder.finish()


def pooled(shape, channels: bool) -> OpGraph:
    builder = GraphBuilder("folds")
    steps = np.arange(9, 9 + shape[1], dtype=np.int32)
    rescale = Rescale(steps * 100, steps << 16, 25, axis=1) if channels else ONE
    attrs = {"kernel": shape[2:], "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "pad_value": 0}
    x = builder.input("x", shape, DType.INT8)
    builder.output(builder.emit("sumpool", [x], (*shape[:2], 1, 1), DType.INT8, attrs=attrs, rescale=rescale))
    return builder.finish()


def ops_after(graph: OpGraph) -> list[str]:
    changed = reduce_in_blocks(graph, CONFIG)
    info, result = graph.tensors["x"], graph.outputs[0]
    rng = np.random.default_rng(1)
    feeds = [rng.standard_normal(info.shape) * 5 if info.dtype.is_float else rng.integers(-128, 128, info.shape)]
    feeds += [np.full(info.shape, bound) for bound in (-128, 127)]
    for x in feeds:
        feed = {"x": x.astype(info.dtype.numpy)}
        before, after = evaluate(graph, feed)[result], evaluate(changed, feed)[result]
        np.testing.assert_array_equal(after, before)
    return [node.op for node in changed.nodes]


@pytest.mark.parametrize("kind", ["sum", "max", "min", "argmax"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_rows_of_several_heads(kind: str, keepdims: bool) -> None:
    ops = ops_after(reduced((1, 3, 40, 64), (3,), kind, keepdims=keepdims))
    assert ops == (BLOCKS if keepdims else BLOCKS[:2])


@pytest.mark.parametrize("dtype", [DType.INT16, DType.BF16])
def test_two_bytes(dtype: DType) -> None:
    assert ops_after(reduced((96, 80), (1,), "max", dtype)) == BLOCKS


@pytest.mark.parametrize("kib", [64, 512])
@pytest.mark.parametrize(("rows", "in_blocks"), [(800, True), (801, False)])
def test_what_is_transposed_leaves_room_for_weights(rows: int, kib: int, in_blocks: bool) -> None:
    """50 KiB whatever the LRAM, so that the operators of a network are the same on every machine."""
    graph = reduce_in_blocks(reduced((rows, 64), (1,)), replace(CONFIG, lram_bytes=kib << 10))
    assert [node.op for node in graph.nodes] == (BLOCKS if in_blocks else ["reduce"])


@pytest.mark.parametrize(
    ("shape", "axes"), [((64, 9, 9), (1, 2)), ((40, 3, 3, 9), (1, 2, 3)), ((2, 3, 64, 5, 7), (3, 4))]
)
def test_several_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    assert ops_after(reduced(shape, axes)) == BLOCKS


@pytest.mark.parametrize("channels", [False, True])
def test_pools_of_whole_planes(channels: bool) -> None:
    assert ops_after(pooled((1, 200, 2, 96), channels)) == BLOCKS
    assert ops_after(pooled((2, 64, 25, 5), channels)) == BLOCKS


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((1, 1000), (1,), DType.INT8),  # one lane: nothing to transpose
        ((64, 64), (0,), DType.INT8),  # lanes lie side by side already
        ((4, 64, 8), (0, 2), DType.INT8),
        ((64, 64), (0, 1), DType.INT8),
        ((64, 64), (1,), DType.FP32),
        ((3, 4, 6), (2,), DType.INT8),  # hardly anything in a block
        ((16, 32), (1,), DType.INT8),  # 84 cycles saved, and a program more
        ((1, 96, 80, 80), (2, 3), DType.INT8),  # long rows: columns first is as good
    ],
)
def test_what_stays(shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType) -> None:
    kind = "max" if dtype.is_float else "sum"
    assert ops_after(reduced(shape, axes, kind, dtype)) == ["reduce"]


@pytest.mark.parametrize(
    ("shape", "axes"), [((1, 200, 2, 96), (2, 3)), ((1, 544, 7, 7), (2, 3)), ((1, 4, 64, 64), (3,))]
)
def test_it_is_worth_it(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    graph = reduced(shape, axes)
    otherwise = min(graph_cycles(graph), graph_cycles(separate_sums(graph, CONFIG)))
    assert graph_cycles(reduce_in_blocks(graph, CONFIG)) < otherwise / 3


@pytest.mark.parametrize("machine", [{"result_bus": 16}, {"data_vector": 16}, {"accumulators": 4096}])
def test_a_machine_without_blocks_keeps_its_folds(machine: dict[str, int]) -> None:
    graph = reduced((1, 4, 64, 64), (3,))
    assert reduce_in_blocks(graph, replace(CONFIG, **machine)).nodes == graph.nodes
