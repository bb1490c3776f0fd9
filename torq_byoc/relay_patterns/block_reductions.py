"""Fold along inner axes behind a block transposition, where that pays.

    reduce (a, b, c, r) over r   becomes   transpose to (a, b, r, c) -> reduce over r -> reshape

A fold along what is contiguous leaves only gathered lanes, a few elements a cycle.  A block transposition moves a
thousand bytes in twenty cycles, and then the lanes of the fold lie side by side.  Whole planes of pools are sums of
that kind.  Exact: nothing is rounded in between, and the elements are folded in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torq_byoc.kernels.blocks import block_cycles
from torq_byoc.kernels.graph import Node, OpGraph, TensorInfo
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.relay_patterns.graph_editing import fresh_name
from torq_byoc.relay_patterns.separable_sums import column_cycles, plane_sum

_WORTHWHILE = 0.75
"""Two nodes instead of one cost programs and an intermediate; they must save at least this factor of the cycles."""
_LEAST_SAVING = 200
"""Cycles on one slice: what loading the programs of the transposition takes."""
_MOST = 50 << 10
"""Bytes that the transposed tensor may take: weights that should be loaded early need the LRAM."""


def reduce_in_blocks(graph: OpGraph, config: NpuConfig) -> OpGraph:
    """The graph with folds along inner axes behind a transposition where that pays."""
    tensors, nodes = dict(graph.tensors), []
    for node in graph.nodes:
        planes = plane_sum(graph, node)
        fold = planes or node
        if fold.op == "reduce" and _pays(graph.tensors[fold.inputs[0]], fold, planes is not None, config):
            nodes += _transposed(graph, fold, tensors)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _inner_axes(shape: Sequence[int], node: Node) -> tuple[int, ...]:
    """The axes of a fold, if they are the innermost ones and some lanes are left outside them; else none."""
    axes = tuple(int(axis) for axis in node.attrs["axes"])
    first = len(shape) - len(axes)
    return axes if first > 0 and axes == tuple(range(first, len(shape))) else ()


def _pays(info: TensorInfo, node: Node, sums_planes: bool, config: NpuConfig) -> bool:
    """Cycles of a whole tensor on one slice, in blocks against the other forms; there are two for sums of planes."""
    axes = _inner_axes(info.shape, node)
    cycles = block_cycles(info.dtype.size, config)
    if not axes or cycles is None or info.nbytes > _MOST:
        return False
    size, lanes = info.dtype.size, info.shape[axes[0] - 1]
    length = math.prod(info.shape[axis] for axis in axes)
    outer = math.prod(info.shape[: axes[0] - 1])
    edge, width, act = config.block_bytes, config.vector_width(info.dtype, None), config.act_width(info.dtype, None)
    addresses = config.limits.gather_groups
    vector = act if outer * lanes > act else addresses
    blocks = math.ceil(lanes / edge) * math.ceil(length * size / edge)
    in_blocks = outer * (blocks * cycles + math.ceil(lanes / width) * max(length, width // act))
    gathered = math.ceil(outer * lanes / vector) * vector / addresses * length
    others = [gathered, *([outer * lanes * column_cycles(info, config)] if sums_planes else [])]
    return in_blocks <= min(_WORTHWHILE * min(others), min(others) - _LEAST_SAVING)


def _transposed(graph: OpGraph, node: Node, tensors: dict[str, TensorInfo]) -> list[Node]:
    source, result = graph.tensors[node.inputs[0]], graph.tensors[node.output]
    axes = _inner_axes(source.shape, node)
    lane = axes[0] - 1
    order = (*range(lane), *axes, lane)
    moved, kept = fresh_name(f"{node.output}_transposed", tensors), fresh_name(f"{node.output}_kept", tensors)
    tensors[moved] = replace(source, name=moved, shape=tuple(source.shape[axis] for axis in order))
    tensors[kept] = replace(result, name=kept, shape=source.shape[: lane + 1])
    folded = {"kind": node.attrs["kind"], "axes": tuple(axis - 1 for axis in axes), "keepdims": False}
    reduced = replace(node, inputs=(moved,), attrs=folded)
    first = Node(moved, "transpose", node.inputs, moved, {"perm": order}, None, node.origin)
    if result.shape == tensors[kept].shape:
        return [first, reduced]
    back = Node(f"{node.name}_shape", "reshape", (kept,), node.output, {}, None, node.origin)
    return [first, replace(reduced, output=kept), back]
