"""Matrix products and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.schedules.tensor_expressions.arithmetic import ActStage, integer, saturate, widen
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
    """Sum, extreme, or place of the first extreme over some axes."""
    from tvm import te

    info, source = graph.tensors[node.output], graph.tensors[node.inputs[0]]
    folded = {int(axis): te.reduce_axis((0, source.shape[axis]), f"r{axis}") for axis in node.attrs["axes"]}
    kind, keeps = node.attrs["kind"], node.attrs.get("keepdims", False)

    def total(*index: Any) -> Any:
        kept = iter([i for axis, i in enumerate(index) if axis not in folded] if keeps else index)
        position = [folded[axis] if axis in folded else next(kept) for axis in range(len(source.shape))]
        element = widen(operands.inputs[0](*position), source.dtype)
        if kind in ("argmax", "argmin"):
            return te.max(_ranked(element, folded, kind, source.dtype.is_float), axis=list(folded.values()))
        fold = {"sum": te.sum, "max": te.max, "min": te.min}[kind]
        return fold(element, axis=list(folded.values()))

    accumulator = te.compute(info.shape, total, name="accumulator")
    stage = ActStage.of(graph, node, operands)
    if kind in ("argmax", "argmin"):
        return te.compute(info.shape, lambda *index: saturate(_place(accumulator(*index)), info.dtype), name=RESULT)
    return te.compute(info.shape, lambda *index: stage.requantize(accumulator(*index), index), name=RESULT)


_PLACE_BITS = 17
"""A reduction has at most 2^16 elements."""


def _ranked(element: Any, folded: Mapping[int, Any], kind: str, is_float: bool) -> Any:
    """A number whose maximum belongs to the first extreme element: its order above, its place below."""
    from tvm import tirx

    if is_float:
        bits = tirx.reinterpret("int32", element.astype("float32") + tirx.const(0.0, "float32"))
        element = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype("int64")
    place: Any = integer(0)
    for axis in folded.values():
        place = place * integer(int(axis.dom.extent)) + axis.var.astype("int64")
    order = element if kind == "argmax" else integer(-1) - element
    return (order << integer(_PLACE_BITS)) + (integer((1 << _PLACE_BITS) - 1) - place)


def _place(ranked: Any) -> Any:
    """The place in a number that ``_ranked`` made."""
    mask = integer((1 << _PLACE_BITS) - 1)
    return mask - (ranked & mask)
