"""Channel shuffles disappear into the convolution before them; the values stay."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.channel_shuffles import absorb_channel_shuffles

RNG = np.random.default_rng(31)
SHAPE = (2, 12, 3, 4)
X = RNG.integers(-128, 128, (2, 8, 3, 4), dtype=np.int8)


def shuffled(
    groups: int, shuffle: int, *, perm=(0, 2, 1, 3, 4), read_twice: bool = False, channels: int = 12
) -> OpGraph:
    """conv2d, a channel shuffle, and one more operator."""
    builder = GraphBuilder("shuffled")
    x = builder.input("x", X.shape, DType.INT8)
    weights = builder.constant(RNG.integers(-128, 128, (12, 8 // groups, 1, 1), dtype=np.int8), "w")
    entries = [RNG.integers(low, high, channels).astype(np.int32) for low, high in ((-999, 999), (1, 99))]
    rescale = Rescale(*entries, 12, 5, axis=1 if channels > 1 else None)
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "groups": groups}
    y = builder.emit("conv2d", [x, weights], SHAPE, DType.INT8, attrs=attrs, rescale=rescale, origin="conv")
    n, c, h, w = SHAPE
    split = builder.emit("reshape", [y], (n, shuffle, c // shuffle, h, w), DType.INT8)
    shape = tuple((n, shuffle, c // shuffle, h, w)[axis] for axis in perm)
    swapped = builder.emit("transpose", [split], shape, DType.INT8, attrs={"perm": perm}, origin="shuffle")
    joined = builder.emit("reshape", [swapped], SHAPE, DType.INT8)
    builder.output(builder.emit("act", [joined], SHAPE, DType.INT8, attrs={"mode": "NEG"}, hint="after"))
    if read_twice:
        builder.output(builder.emit("act", [y], SHAPE, DType.INT8, attrs={"mode": "NEG"}, hint="other"))
    return builder.finish()


@pytest.mark.parametrize(("groups", "shuffle"), [(1, 3), (1, 4), (2, 2), (4, 4)])
@pytest.mark.parametrize("channels", [1, 12])
def test_shuffle_of_a_convolution(groups: int, shuffle: int, channels: int) -> None:
    graph = shuffled(groups, shuffle, channels=channels)
    after = absorb_channel_shuffles(graph)
    assert [node.op for node in after.nodes] == ["conv2d", "act"]
    assert bool(after.nodes[0].attrs.get("interleaved")) == (groups > 1)
    assert after.nodes[0].origin == "conv+shuffle"
    assert set(after.constants) <= set(after.tensors) and "w" not in after.constants
    want, got = evaluate(graph, {"x": X}), evaluate(after, {"x": X})
    assert all(np.array_equal(want[name], got[name]) for name in graph.outputs)


@pytest.mark.parametrize(
    "options",
    [
        {"groups": 2, "shuffle": 3},
        {"groups": 4, "shuffle": 2},
        {"groups": 2, "shuffle": 2, "perm": (0, 2, 1, 4, 3)},
        {"groups": 2, "shuffle": 2, "read_twice": True},
    ],
    ids=["other groups", "fewer groups", "more than channels move", "the order before is needed too"],
)
def test_what_must_stay(options: dict[str, object]) -> None:
    graph = shuffled(**options)
    assert absorb_channel_shuffles(graph).nodes == graph.nodes
