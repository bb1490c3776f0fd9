"""Matrix products and reductions."""

from __future__ import annotations

from typing import Any

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.schedules.tensor_expressions.arithmetic import ActStage, widen
from torq_byoc.schedules.tensor_expressions.broadcasting import broadcast_element
from torq_byoc.schedules.tensor_expressions.definition import RESULT, Operands, defines


@defines("matmul")
def matmul(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """a[..., M, K] times b[..., K, N]; leading axes broadcast."""
    from tvm import te

    info = graph.tensors[node.output]
    left, right = (graph.tensors[name] for name in node.inputs[:2])
    k = te.reduce_axis((0, left.shape[-1]), "k")

    def product(*index: Any) -> Any:
        a = broadcast_element(operands.inputs[0], (*index[:-1], k))
        b = broadcast_element(operands.inputs[1], (*index[:-2], k, index[-1]))
        return te.sum(widen(a, left.dtype) * widen(b, right.dtype), axis=k)

    accumulator = te.compute(info.shape, product, name="accumulator")
    stage = ActStage.of(graph, node, operands)
    return te.compute(info.shape, lambda *index: stage.requantize(accumulator[index], index), name=RESULT)


@defines("reduce")
def reduce(graph: OpGraph, node: Node, operands: Operands) -> Any:
    """Sum, maximum or minimum over some axes."""
    from tvm import te

    info, source = graph.tensors[node.output], graph.tensors[node.inputs[0]]
    axes = [int(axis) for axis in node.attrs["axes"]]
    folded = {axis: te.reduce_axis((0, source.shape[axis]), f"r{axis}") for axis in axes}
    fold = {"sum": te.sum, "max": te.max, "min": te.min}[node.attrs["kind"]]

    def total(*index: Any) -> Any:
        kept = iter([i for axis, i in enumerate(index) if axis not in folded] if node.attrs["keepdims"] else index)
        position = [folded[axis] if axis in folded else next(kept) for axis in range(len(source.shape))]
        return fold(widen(operands.inputs[0](*position), source.dtype), axis=list(folded.values()))

    accumulator = te.compute(info.shape, total, name="accumulator")
    stage = ActStage.of(graph, node, operands)
    return te.compute(info.shape, lambda *index: stage.requantize(accumulator(*index), index), name=RESULT)
