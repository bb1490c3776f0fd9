"""Small graphs of several nodes for decisions and residency, and what tests do with them."""

from __future__ import annotations

import itertools

import numpy as np
from codegen.infra import heavy_tailed
from schedules.cases import per_channel

from torq_byoc.codegen.generate import GeneratedProgram, generate
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import verify
from torq_byoc.schedules.fusion.segment import Segment, SegmentFinder
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.scheduled import Schedule


def add_conv(
    builder: GraphBuilder, source: str, channels: int, kernel: int = 3, stride: int = 1, name: str = "conv"
) -> str:
    batch, depth, height, width = builder.info(source).shape
    pad = kernel // 2
    rng = np.random.default_rng(channels)
    weights = builder.constant(rng.integers(-127, 128, (channels, depth, kernel, kernel)).astype(np.int8), f"{name}_w")
    rows, columns = ((extent + 2 * pad - kernel) // stride + 1 for extent in (height, width))
    attrs = {"strides": (stride, stride), "pads": (pad,) * 4, "dilations": (1, 1), "groups": 1, "pad_value": 3}
    shape = (batch, channels, rows, columns)
    return builder.emit(
        "conv2d", [source, weights], shape, DType.INT8, attrs=attrs, rescale=per_channel(channels), hint=name
    )


def add_sum(builder: GraphBuilder, a: str, b: str, name: str = "add") -> str:
    rescale = Rescale(np.array([9], np.int32), None, 12)
    attrs = {"weights": (2048, 3000)}
    return builder.emit("sum2", [a, b], builder.info(a).shape, DType.INT8, attrs=attrs, rescale=rescale, hint=name)


def residual(size: int = 28, channels: int = 16, blocks: int = 2) -> OpGraph:
    """conv, then blocks of conv, conv, add of the block's input; every tensor but the ends may be resident."""
    builder = GraphBuilder("residual")
    x = add_conv(builder, builder.input("image", (1, 3, size, size), DType.INT8), channels, name="stem")
    for block in range(blocks):
        y = add_conv(builder, x, channels, name=f"b{block}_a")
        y = add_conv(builder, y, channels, name=f"b{block}_b")
        x = add_sum(builder, x, y, name=f"b{block}_add")
    builder.output(x)
    return builder.finish()


def flattened(channels: int = 8) -> OpGraph:
    """conv, reshape, matmul: the reshape is an alias."""
    builder = GraphBuilder("flattened")
    x = add_conv(builder, builder.input("image", (1, 3, 6, 6), DType.INT8), channels, name="stem")
    flat = builder.emit("reshape", [x], (1, channels * 36), DType.INT8, hint="flat")
    weights = builder.constant(np.ones((channels * 36, 10), np.int8), "fc_w")
    y = builder.emit("matmul", [flat, weights], (1, 10), DType.INT8, rescale=per_channel(10, axis=-1), hint="fc")
    builder.output(y)
    return builder.finish()


def strided(size: int = 16) -> OpGraph:
    """conv, then a stride-2 conv that wants its input in phase planes."""
    builder = GraphBuilder("strided")
    x = add_conv(builder, builder.input("image", (1, 3, size, size), DType.INT8), 8, name="stem")
    y = add_conv(builder, x, 8, stride=2, name="down")
    builder.output(add_conv(builder, y, 8, name="tail"))
    return builder.finish()


def resnet50(size: int = 224) -> OpGraph:
    """The shapes of ResNet-50 v1.5 up to its pooling, weights arbitrary."""
    builder = GraphBuilder("resnet50")
    x = add_conv(builder, builder.input("image", (1, 3, size, size), DType.INT8), 64, 7, 2, "stem")
    attrs = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1), "pad_value": -128}
    x = builder.emit("maxpool", [x], (1, 64, size // 4, size // 4), DType.INT8, attrs=attrs, hint="pool")
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            y = add_conv(builder, x, width, 1, name=f"s{stage}b{block}a")
            y = add_conv(builder, y, width, 3, stride, f"s{stage}b{block}b")
            y = add_conv(builder, y, 4 * width, 1, name=f"s{stage}b{block}c")
            if block == 0:
                x = add_conv(builder, x, 4 * width, 1, stride, f"s{stage}b{block}d")
            x = add_sum(builder, x, y, f"s{stage}b{block}add")
    builder.output(x)
    return builder.finish()


def all_segments(graph: OpGraph, config: NpuConfig) -> list[Segment]:
    """Every run of a graph's nodes that may become a group."""
    finder = segment_finder(graph, config)
    runs = itertools.combinations(range(len(graph.nodes)), 2)
    return [segment for run in runs if (segment := finder.segment(*run)) is not None]


def whole_segment(graph: OpGraph, config: NpuConfig) -> Segment:
    """All nodes of a graph as one segment."""
    segment = segment_finder(graph, config).segment(0, len(graph.nodes) - 1)
    assert segment is not None
    return segment


def segment_finder(graph: OpGraph, config: NpuConfig) -> SegmentFinder:
    return SegmentFinder(graph, graph.nodes, {node.name: NodeModel(graph, node, config) for node in graph.nodes})


def run_exact(graph: OpGraph, plan: Schedule, config: NpuConfig) -> GeneratedProgram:
    """Generate, verify, simulate, and compare every bit with the reference."""
    generated = generate(graph, plan, config)
    verify(generated.program)
    rng = np.random.default_rng(4)
    inputs = {name: heavy_tailed(rng, graph.tensors[name].shape) for name in graph.inputs}
    expected, found = evaluate(graph, inputs), Simulator(generated.program).run(inputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(found[name], expected[name])
    return generated
