"""Max pools divided by axis, and channel-last ones without transposes: which graphs change, and that values do not."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.separable_pools import separate_pools

CONFIG = NpuConfig()
RESCALE = Rescale(np.array([3], np.int32), np.array([1 << 14], np.int32), 15, zero_point=-7, clip_min=-100)


def pool(
    builder: GraphBuilder, x: str, kernel: tuple[int, int], stride: int = 1, pads: tuple[int, ...] = (2, 2, 2, 2)
) -> str:
    shape = builder.info(x).shape
    plane = [(shape[2 + a] + pads[a] + pads[2 + a] - kernel[a]) // stride + 1 for a in (0, 1)]
    attrs = {"kernel": kernel, "strides": (stride, stride), "pads": pads, "dilations": (1, 1), "pad_value": -128}
    return builder.emit("maxpool", [x], (*shape[:2], *plane), DType.INT8, attrs=attrs, rescale=RESCALE, hint="pool")


def transposed(builder: GraphBuilder, x: str, perm: tuple[int, ...]) -> str:
    shape = tuple(builder.info(x).shape[axis] for axis in perm)
    return builder.emit("transpose", [x], shape, DType.INT8, attrs={"perm": perm}, hint="transpose")


def channel_last(kernel: tuple[int, int] = (5, 5), stride: int = 1, also: bool = False) -> OpGraph:
    builder = GraphBuilder("test")
    x = builder.input("x", (2, 7, 9, 5), DType.INT8)
    front = transposed(builder, x, (0, 3, 1, 2))
    pads = (kernel[0] // 2, kernel[1] // 2) * 2
    pooled = pool(builder, front, kernel, stride, pads)
    builder.output(transposed(builder, pooled, (0, 2, 3, 1)))
    if also:
        builder.output(pooled)
    return builder.finish()


def planar(kernel: tuple[int, int], stride: int = 1, pads: tuple[int, ...] = (2, 2, 2, 2)) -> OpGraph:
    builder = GraphBuilder("test")
    builder.output(pool(builder, builder.input("x", (1, 3, 9, 11), DType.INT8), kernel, stride, pads))
    return builder.finish()


def ops_after(graph: OpGraph) -> list[str]:
    """Operators of the rewritten graph, whose outputs equal those of the graph."""
    changed = separate_pools(graph, CONFIG)
    x = np.random.default_rng(0).integers(-128, 128, graph.tensors["x"].shape).astype(np.int8)
    before, after = evaluate(graph, {"x": x}), evaluate(changed, {"x": x})
    assert changed.outputs == graph.outputs
    for name in graph.outputs:
        np.testing.assert_array_equal(after[name], before[name])
    return [node.op for node in changed.nodes]


@pytest.mark.parametrize(
    ("kernel", "ops"),
    [((5, 5), ["window_max"] * 2), ((3, 3), ["window_max"] * 2), ((1, 3), ["window_max"]), ((5, 1), ["window_max"])],
)
def test_channel_last_pools_need_no_transposes(kernel: tuple[int, int], ops: list[str]) -> None:
    assert ops_after(channel_last(kernel)) == ops


def test_transposes_stay_where_the_pool_is_needed_as_it_is() -> None:
    assert ops_after(channel_last((3, 3), also=True)) == ["transpose", "maxpool", "transpose"]
    assert ops_after(channel_last((3, 3), stride=2)) == ["transpose", "maxpool", "transpose"]


def test_large_pools_are_divided() -> None:
    assert ops_after(planar((5, 5))) == ["maxpool", "maxpool"]
    assert ops_after(planar((3, 5), pads=(1, 2, 1, 2))) == ["maxpool", "maxpool"]
    assert ops_after(planar((4, 4), pads=(0, 0, 0, 0))) == ["maxpool", "maxpool"]


def test_small_and_strided_pools_stay_whole() -> None:
    assert ops_after(planar((3, 3), pads=(1, 1, 1, 1))) == ["maxpool"]
    assert ops_after(planar((5, 5), stride=2)) == ["maxpool"]
    assert ops_after(planar((1, 7), pads=(0, 3, 0, 3))) == ["maxpool"]
