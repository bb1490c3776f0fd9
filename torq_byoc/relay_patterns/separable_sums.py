"""Sum a whole plane down its columns first, then along what is left.

    reduce sum over (H, W), sumpool of H x W   becomes   reduce sum over H -> reduce sum over (1, W)

A sum over everything that is contiguous leaves only gathered lanes, a few elements a cycle; columns are summed with
the lanes along the rows.  The sums of columns are int16, so nothing is rounded in between.  Exact.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torq_byoc.kernels.graph import Node, OpGraph, TensorInfo
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.graph_editing import fresh_name

_AXES = (2, 3)
_WORTHWHILE = 0.75
"""Two nodes instead of one cost programs and an intermediate; they must save at least this factor of the cycles."""


def separate_sums(graph: OpGraph, config: NpuConfig) -> OpGraph:
    """The graph with sums over whole planes divided where that pays."""
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        fold = plane_sum(graph, node)
        if fold is not None and _pays(graph.tensors[node.inputs[0]], config):
            nodes += _pair(graph, fold, tensors)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def plane_sum(graph: OpGraph, node: Node) -> Node | None:
    """A node that sums whole planes up as a reduction, with one rescale a channel or for all; None for others."""
    shape = graph.tensors[node.inputs[0]].shape if node.inputs else ()
    if node.op == "reduce":
        is_one = node.attrs["kind"] == "sum" and len(shape) == 4 and tuple(node.attrs["axes"]) == _AXES
        return node if is_one else None
    if node.op != "sumpool" or (node.rescale is not None and node.rescale.axis not in (None, 1)):
        return None
    borders = (*node.attrs["pads"], *(dilation - 1 for dilation in node.attrs.get("dilations", (1, 1))))
    if tuple(node.attrs["kernel"]) != shape[2:] or any(borders):
        return None
    keepdims = len(graph.tensors[node.output].shape) == 4
    return replace(node, op="reduce", attrs={"kind": "sum", "axes": _AXES, "keepdims": keepdims})


def column_cycles(info: TensorInfo, config: NpuConfig) -> float:
    """Cycles of a plane in two steps, lanes along a row and gathered lanes for what is left.

    Args:
        info: the planes; infinite where sums of their columns do not fit 16 bits.
        config: the machine.
    """
    low, high = info.dtype.integer_range if not info.dtype.is_float else (0, 0)
    height, width = info.shape[2:]
    if info.dtype.size != 1 or info.dtype.is_float or height * max(-low, high) > DType.INT16.integer_range[1]:
        return math.inf
    columns = height * math.ceil(width / config.vector_width(info.dtype, None))
    return columns + width / config.limits.gather_groups


def _pays(info: TensorInfo, config: NpuConfig) -> bool:
    """Cycles a plane of both forms, the other being gathered lanes."""
    gathered = math.prod(info.shape[2:]) / config.limits.gather_groups
    return column_cycles(info, config) <= _WORTHWHILE * gathered


def _pair(graph: OpGraph, node: Node, tensors: dict[str, TensorInfo]) -> list[Node]:
    name = fresh_name(f"{node.output}_columns", tensors)
    batch, channels, _, width = graph.tensors[node.inputs[0]].shape
    tensors[name] = TensorInfo(name, (batch, channels, 1, width), DType.INT16)
    columns = {"kind": "sum", "axes": _AXES[:1], "keepdims": True}
    return [Node(name, "reduce", node.inputs, name, columns, None, node.origin), replace(node, inputs=(name,))]
