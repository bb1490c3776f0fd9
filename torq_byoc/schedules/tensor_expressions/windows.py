"""Convolutions and pools: a padded input stage, an accumulator stage, the rescale.

The padded stage stands where the machine's plane logic supplies the border; it never exists in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.schedules.tensor_expressions.arithmetic import ActStage, widen
from torq_byoc.schedules.tensor_expressions.definition import RESULT, Operands, defines


@defines("conv2d")
def conv2d(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Dense, grouped and depthwise convolution, NCHW and OIHW."""
    from tvm import te

    shape = graph.tensors[node.output].shape
    weights = graph.tensors[node.inputs[1]]
    out_channels, group_in, *kernel = weights.shape
    groups = int(node.attrs.get("groups", 1))
    group_out = out_channels // groups
    interleaved = bool(node.attrs.get("interleaved", False))
    image = _padded(graph, node, operands, kernel)
    c, y, x = (
        te.reduce_axis((0, group_in), "c"),
        te.reduce_axis((0, kernel[0]), "y"),
        te.reduce_axis((0, kernel[1]), "x"),
    )
    data_type = graph.tensors[node.inputs[0]].dtype

    def product(n: Any, o: Any, i: Any, j: Any) -> Any:
        group = o % groups if interleaved else o // group_out
        channel = group * group_in + c if groups > 1 else c
        element = image[n, channel, *_tap(node, i, j, y, x)]
        return te.sum(widen(element, data_type) * widen(operands.inputs[1][o, c, y, x], weights.dtype), axis=[c, y, x])

    return _result(graph, node, operands, te.compute(shape, product, name="accumulator"))


@defines("maxpool", "sumpool")
def pool(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Maximum or sum over windows."""
    from tvm import te

    shape = graph.tensors[node.output].shape
    kernel = [int(extent) for extent in node.attrs["kernel"]]
    image = _padded(graph, node, operands, kernel)
    y, x = te.reduce_axis((0, kernel[0]), "y"), te.reduce_axis((0, kernel[1]), "x")
    data_type = graph.tensors[node.inputs[0]].dtype
    fold = te.max if node.op == "maxpool" else te.sum

    def window(n: Any, c: Any, i: Any, j: Any) -> Any:
        return fold(widen(image[n, c, *_tap(node, i, j, y, x)], data_type), axis=[y, x])

    return _result(graph, node, operands, te.compute(shape, window, name="accumulator"))


@defines("window_max")
def window_max(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Maximum over windows along one axis."""
    from tvm import te, tirx

    source, shape = operands.inputs[0], graph.tensors[node.output].shape
    info = graph.tensors[node.inputs[0]]
    at, before, dilation = (int(node.attrs[name]) for name in ("axis", "before", "dilation"))
    value = tirx.const(node.attrs["pad_value"], source.dtype)
    extent = list(info.shape)
    extent[at] = shape[at] + (int(node.attrs["kernel"]) - 1) * dilation

    def element(*index: Any) -> Any:
        moved = (*index[:at], index[at] - before, *index[at + 1 :])
        inside = tirx.all(index[at] >= before, index[at] < info.shape[at] + before)
        return tirx.if_then_else(inside, source[moved], value)

    bordered = before > 0 or extent[at] > info.shape[at]
    image = te.compute(extent, element, name="padded") if bordered else source
    tap = te.reduce_axis((0, int(node.attrs["kernel"])), "tap")

    def window(*index: Any) -> Any:
        return te.max(widen(image[(*index[:at], index[at] + tap * dilation, *index[at + 1 :])], info.dtype), axis=[tap])

    return _result(graph, node, operands, te.compute(shape, window, name="accumulator"))


def _tap(node: Node, i: Any, j: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """Position in the padded input of one tap of one output."""
    (sy, sx), (dy, dx) = node.attrs["strides"], node.attrs.get("dilations", (1, 1))
    return i * int(sy) + y * int(dy), j * int(sx) + x * int(dx)


def _padded(graph: OpGraph, node: Node, operands: Operands, kernel: Sequence[int]) -> Any:
    """The input with its border, as far as any window reaches."""
    from tvm import te, tirx

    source = operands.inputs[0]
    shape, out = graph.tensors[node.inputs[0]].shape, graph.tensors[node.output].shape
    top, left = (int(pad) for pad in node.attrs["pads"][:2])
    dilations = node.attrs.get("dilations", (1, 1))
    extent = [
        (out[2 + axis] - 1) * int(node.attrs["strides"][axis]) + (kernel[axis] - 1) * int(dilations[axis]) + 1
        for axis in (0, 1)
    ]
    if top == left == 0 and extent[0] <= shape[2] and extent[1] <= shape[3]:
        return source
    value = tirx.const(node.attrs.get("pad_value", 0), source.dtype)

    def element(n: Any, c: Any, y: Any, x: Any) -> Any:
        inside = tirx.all(y >= top, y < shape[2] + top, x >= left, x < shape[3] + left)
        return tirx.if_then_else(inside, source[n, c, y - top, x - left], value)

    return te.compute((*shape[:2], *extent), element, name="padded")


def _result(graph: OpGraph, node: Node, operands: Operands, accumulator: Any) -> Any:
    from tvm import te

    stage = ActStage.of(graph, node, operands)
    return te.compute(stage.shape, lambda *index: stage.requantize(accumulator[index], index), name=RESULT)
