"""Random window geometries: every convolution and pool either runs exactly, or runs after its explicit pads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torq_byoc.kernels.pooling  # noqa: F401  (registers the kernels)
from tests.kernels.infra import CONFIG, Tile, one_node, random_values, reference, run
from tests.kernels.test_conv2d import brute_conv
from tests.kernels.test_pooling import brute_pool
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import Region, kernel_for
from torq_byoc.npu_model.dtypes import DType

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@st.composite
def axes(draw: st.DrawFn) -> dict[str, int]:
    """One spatial axis with at least one output."""
    kernel, stride, dilation = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    before, after = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    reach = (kernel - 1) * dilation + 1
    size = draw(st.integers(max(1, reach - before - after), max(1, reach - before - after) + 12))
    return {"kernel": kernel, "stride": stride, "dilation": dilation, "before": before, "after": after, "size": size}


def outputs(axis: dict[str, int]) -> int:
    reach = (axis["kernel"] - 1) * axis["dilation"] + 1
    return (axis["size"] + axis["before"] + axis["after"] - reach) // axis["stride"] + 1


def attributes(rows: dict[str, int], columns: dict[str, int], pad_value: int) -> dict[str, object]:
    return {
        "kernel": (rows["kernel"], columns["kernel"]),
        "strides": (rows["stride"], columns["stride"]),
        "dilations": (rows["dilation"], columns["dilation"]),
        "pads": (rows["before"], columns["before"], rows["after"], columns["after"]),
        "pad_value": pad_value,
    }


def supported(graph: OpGraph, x: np.ndarray, pad_value: int) -> tuple[OpGraph, np.ndarray]:
    """The node itself, or the node after the pad that its kernel asks for."""
    node = graph.nodes[0]
    kernel = kernel_for(node.op)
    if kernel.unsupported(graph, node, CONFIG) is None:
        return graph, x
    top, left, bottom, right = kernel.explicit_pads(graph, node)
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad_value)
    info = graph.tensors[node.inputs[0]]
    tensors = {**graph.tensors, info.name: replace(info, shape=x.shape)}
    padded = replace(node, attrs={**node.attrs, "pads": (0, 0, 0, 0)})
    graph = replace(graph, tensors=tensors, nodes=(padded,))
    assert kernel.unsupported(graph, padded, CONFIG) is None
    return graph, x


def random_tiles(draw_int: np.random.Generator, graph: OpGraph) -> list[Tile]:
    """Cut the output at random places that the kernel allows, each tile in two parts."""
    node = graph.nodes[0]
    shape = graph.tensors[node.output].shape
    steps = kernel_for(node.op).tile_steps(graph, node, CONFIG)
    tiles = [Region.whole(shape)]
    for axis in draw_int.permutation(4)[:3]:
        tiles = [half for tile in tiles for half in halves(tile, int(axis), steps[axis], draw_int)]
    return [Tile(tile, tuple(halves(tile, int(draw_int.integers(1, 4)), steps[1], draw_int, steps))) for tile in tiles]


def halves(region: Region, axis: int, step: int, rng: np.random.Generator, steps: tuple[int, ...] = ()) -> list[Region]:
    step = steps[axis] if steps else step
    extent = region.extent[axis]
    if step == 0 or extent <= step:
        return [region]
    cut = int(rng.integers(1, -(-extent // step))) * step
    first, second = list(region.extent), list(region.extent)
    first[axis], second[axis] = cut, extent - cut
    start = list(region.start)
    start[axis] += cut
    return [Region(region.start, tuple(first)), Region(tuple(start), tuple(second))]


def check(graph: OpGraph, x: np.ndarray, others: list[np.ndarray], expected: np.ndarray, pad: int, seed: int) -> None:
    np.testing.assert_array_equal(reference(graph, [x, *others]), expected)
    graph, x = supported(graph, x, pad)
    rng = np.random.default_rng(seed)
    tiles = random_tiles(rng, graph)
    phases = tuple(int(p) for p in rng.integers(1, 3, 2))
    actual = run(graph, [x], tiles, output_phases=phases, whole_inputs=bool(rng.integers(2)))
    np.testing.assert_array_equal(actual, expected)


@SETTINGS
@given(
    axes(), axes(), st.integers(1, 3), st.integers(1, 20), st.sampled_from(["dense", "depthwise"]), st.integers(0, 99)
)
def test_convolutions(rows, columns, channels, out_channels, kind, seed) -> None:
    groups = channels if kind == "depthwise" else 1
    out_channels = channels if kind == "depthwise" else out_channels
    rng = np.random.default_rng(seed)
    attrs = {**attributes(rows, columns, -3), "groups": groups}
    kernel = attrs.pop("kernel")
    x = random_values(rng, (1, channels, rows["size"], columns["size"]), DType.INT8)
    w = random_values(rng, (out_channels, channels // groups, *kernel), DType.INT8)
    hw = outputs(rows), outputs(columns)
    expected = brute_conv(x, w, attrs["strides"], attrs["dilations"], attrs["pads"], groups, -3, hw)
    graph = one_node("conv2d", [(x.shape, DType.INT8), w], (1, out_channels, *hw), DType.INT32, attrs)
    check(graph, x, [w], expected, -3, seed)


@SETTINGS
@given(axes(), axes(), st.integers(1, 5), st.sampled_from(["maxpool", "sumpool"]), st.integers(0, 99))
def test_pools(rows, columns, channels, op, seed) -> None:
    attrs = attributes(rows, columns, -5)
    x = random_values(np.random.default_rng(seed), (1, channels, rows["size"], columns["size"]), DType.INT8)
    hw = outputs(rows), outputs(columns)
    expected = brute_pool(op, x, attrs["kernel"], attrs["strides"], attrs["dilations"], attrs["pads"], -5, hw)
    graph = one_node(op, [(x.shape, DType.INT8)], (1, channels, *hw), DType.INT32, attrs)
    check(graph, x, [], expected, -5, seed)
