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
        if _sums_planes(graph, node) and _pays(graph.tensors[node.inputs[0]], config):
            nodes += _pair(graph, node, tensors)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _sums_planes(graph: OpGraph, node: Node) -> bool:
    """Whether a node sums 8-bit planes up completely, with one rescale a channel or for all."""
    shape = graph.tensors[node.inputs[0]].shape if node.inputs else ()
    if node.op == "reduce":
        return node.attrs["kind"] == "sum" and len(shape) == 4 and tuple(node.attrs["axes"]) == _AXES
    if node.op != "sumpool" or (node.rescale is not None and node.rescale.axis not in (None, 1)):
        return False
    borders = (*node.attrs["pads"], *(dilation - 1 for dilation in node.attrs.get("dilations", (1, 1))))
    return tuple(node.attrs["kernel"]) == shape[2:] and not any(borders)


def _pays(info: TensorInfo, config: NpuConfig) -> bool:
    """Cycles a plane of both forms: gathered lanes, against lanes along a row and gathered lanes for what is left."""
    low, high = info.dtype.integer_range if not info.dtype.is_float else (0, 0)
    height, width = info.shape[2:]
    if info.dtype.size != 1 or info.dtype.is_float or height * max(-low, high) > DType.INT16.integer_range[1]:
        return False
    gathered = config.limits.gather_groups
    columns = height * math.ceil(width / config.vector_width(info.dtype, None))
    return columns + width / gathered <= _WORTHWHILE * height * width / gathered


def _pair(graph: OpGraph, node: Node, tensors: dict[str, TensorInfo]) -> list[Node]:
    name = fresh_name(f"{node.output}_columns", tensors)
    batch, channels, _, width = graph.tensors[node.inputs[0]].shape
    tensors[name] = TensorInfo(name, (batch, channels, 1, width), DType.INT16)
    columns = {"kind": "sum", "axes": _AXES[:1], "keepdims": True}
    keepdims = len(graph.tensors[node.output].shape) == 4
    rows = {"kind": "sum", "axes": _AXES, "keepdims": keepdims}
    return [
        Node(name, "reduce", node.inputs, name, columns, None, node.origin),
        replace(node, op="reduce", inputs=(name,), attrs=rows),
    ]
