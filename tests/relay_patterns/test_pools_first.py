"""Pools that go before a function: which functions never fall, and that no value changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import activation, prelu
from torq_byoc.relay_patterns.pools_first import pool_first
from torq_byoc.relay_patterns.quant_params import QuantParams

RNG = np.random.default_rng(8)
OUT = QuantParams(0.021, 5, DType.INT8)
SLOPES = np.array([0.25, 0.0, 1.5, 0.1]).reshape(4, 1, 1)
Build = Callable[[GraphBuilder, str], str]


def sloped(slopes: np.ndarray) -> Build:
    return lambda b, x: prelu.lower(b, x, slopes, OUT, "node")


def function(name: str, **attributes: float) -> Build:
    return lambda b, x: activation.lower(b, x, name, OUT, "node", **attributes)


def network(
    build: Build,
    source: QuantParams,
    *,
    strides: tuple[int, int] = (2, 2),
    pads: tuple[int, int, int, int] = (0, 0, 1, 1),
    rescale: Rescale | None = None,
    keep: bool = False,
) -> OpGraph:
    """A pass before, the function, a pool of 3 x 3, a pass behind."""
    builder = GraphBuilder("network")
    x = builder.input("x", (2, 4, 12, 10), source.dtype, source.scale, source.zero_point)
    y = build(builder, x)
    if keep:
        builder.output(y)
    rows, columns = ((n + before + after - 3) // s + 1 for n, before, after, s in zip(
        (12, 10), pads[:2], pads[2:], strides, strict=True
    ))  # fmt: skip
    attrs = {"kernel": (3, 3), "strides": strides, "pads": pads, "dilations": (1, 1), "pad_value": -128}
    shape = (2, 4, rows, columns)
    builder.output(builder.emit("maxpool", [y], shape, DType.INT8, attrs=attrs, rescale=rescale, hint="pool"))
    return builder.finish()


def ops_after(graph: OpGraph) -> list[str]:
    changed = pool_first(graph)
    info = graph.tensors["x"]
    low, high = info.dtype.integer_range
    for codes in (RNG.integers(low, high + 1, info.shape), np.full(info.shape, low), np.full(info.shape, high)):
        feed = {"x": codes.astype(info.dtype.numpy)}
        before, after = evaluate(graph, feed), evaluate(changed, feed)
        for name in graph.outputs:
            np.testing.assert_array_equal(after[name], before[name])
    return [node.op for node in changed.nodes]


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
def test_functions_that_never_fall(dtype: DType) -> None:
    middle = 0 if dtype is DType.INT8 else 128

    def at(zero_point: int) -> QuantParams:
        return QuantParams(0.03, zero_point, dtype)

    for slopes in (SLOPES, np.array([0.1]), np.array([1.2])):
        assert ops_after(network(sloped(slopes), at(middle + 9))) == ["maxpool", "act", "weighted_sum"]
    if dtype is DType.INT8:
        assert ops_after(network(sloped(SLOPES), at(0))) == ["maxpool", "weighted_max"]
    for name in ("sigmoid", "tanh", "elu", "softplus"):
        attributes = {"alpha": 0.7} if name == "elu" else {}
        assert ops_after(network(function(name, **attributes), at(middle))) == ["maxpool", "table"]
    assert ops_after(network(function("relu"), at(middle))) == ["maxpool", "act"]
    exact = QuantParams(OUT.scale, OUT.zero_point, dtype)
    if dtype is DType.INT8:  # x itself and a slanted copy, the larger of them
        assert ops_after(network(sloped(np.array([0.25])), exact)) == ["maxpool", "act", "maximum"]


def test_a_pool_that_only_requantizes_to_the_same_codes() -> None:
    same = Rescale(np.array([-5], np.int32), np.array([1 << 30], np.int32), 30, 5, -128, 127)
    source = QuantParams(0.03, 0, DType.INT8)
    assert ops_after(network(sloped(SLOPES), source, rescale=same))[0] == "maxpool"
    other = Rescale(np.array([-5], np.int32), np.array([1 << 29], np.int32), 30, 5, -128, 127)
    clipped = Rescale(np.array([-5], np.int32), np.array([1 << 30], np.int32), 30, 5, 5, 127)
    for rescale in (other, clipped):
        assert ops_after(network(sloped(SLOPES), source, rescale=rescale))[-1] == "maxpool"


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (sloped(np.array([0.25, -0.01, 0.5, 1.0]).reshape(4, 1, 1)), {}),
        (function("abs"), {}),
        (function("neg"), {}),
        (function("hardswish"), {}),
        (sloped(SLOPES), {"strides": (1, 1), "pads": (1, 1, 1, 1)}),
        (sloped(SLOPES), {"keep": True}),
        (sloped(RNG.uniform(0, 1, (12, 10))), {}),
    ],
    ids=["one slope falls", "abs", "neg", "hardswish", "as many elements", "another reader", "slopes a pixel"],
)
def test_what_stays(build: Build, options: dict) -> None:
    graph = network(build, QuantParams(0.03, 0, DType.INT8), **options)
    assert ops_after(graph) == [node.op for node in graph.nodes]
