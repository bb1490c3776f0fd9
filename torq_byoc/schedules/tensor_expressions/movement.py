"""Operators that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.schedules.tensor_expressions.definition import RESULT, Operands, defines


@defines("pad")
def pad(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """A constant border."""
    from tvm import te, tirx

    source, shape = operands.inputs[0], graph.tensors[node.output].shape
    before = [int(count) for count in node.attrs["before"]]
    extents = graph.tensors[node.inputs[0]].shape
    value = tirx.const(node.attrs["value"], source.dtype)

    def element(*index: Any) -> Any:
        own = [i - first for i, first in zip(index, before, strict=True)]
        sides = [tirx.all(i >= 0, i < extent) for i, extent in zip(own, extents, strict=True)]
        return tirx.if_then_else(tirx.all(*sides), source(*own), value)

    return te.compute(shape, element, name=RESULT)


@defines("concat")
def concat(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Inputs one after the other along an axis."""
    from tvm import te, tirx

    axis, shape = int(node.attrs["axis"]), graph.tensors[node.output].shape

    def element(*index: Any) -> Any:
        chosen, end = None, shape[axis]
        for tensor in reversed(operands.inputs):
            begin = end - int(tensor.shape[axis])
            value = tensor(*index[:axis], index[axis] - begin, *index[axis + 1 :])
            chosen = value if chosen is None else tirx.if_then_else(index[axis] >= end, chosen, value)
            end = begin
        return chosen

    return te.compute(shape, element, name=RESULT)


@defines("slice")
def strided_slice(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Every ``step``-th element from ``begin`` on."""
    from tvm import te

    begin = node.attrs["begin"]
    step = node.attrs.get("step", (1,) * len(begin))

    def element(*index: Any) -> Any:
        return operands.inputs[0](*(i * int(s) + int(b) for i, s, b in zip(index, step, begin, strict=True)))

    return te.compute(graph.tensors[node.output].shape, element, name=RESULT)


@defines("transpose")
def transpose(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Output axis i is input axis perm[i]."""
    from tvm import te

    perm = [int(axis) for axis in node.attrs["perm"]]

    def element(*index: Any) -> Any:
        return operands.inputs[0](*(index[perm.index(axis)] for axis in range(len(perm))))

    return te.compute(graph.tensors[node.output].shape, element, name=RESULT)


@defines("resize_nearest")
def resize_nearest(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Every pixel repeated by whole factors."""
    from tvm import te

    fy, fx = (int(factor) for factor in node.attrs["factors"])

    def element(*index: Any) -> Any:
        return operands.inputs[0](*index[:-2], index[-2] // fy, index[-1] // fx)

    return te.compute(graph.tensors[node.output].shape, element, name=RESULT)
