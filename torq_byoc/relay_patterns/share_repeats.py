"""Compute once what several operators ask for: equal passes over one tensor.

    act(x) [remove the zero point] for two products   becomes   one act, read by both

Zero points are removed by every product of its own accord, and every bf16 operator asks for codes as floats, so
tensors with several readers would be converted several times.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph, Rescale

_CHEAP_TO_COMPARE = ("act", "reshape", "transpose", "broadcast", "slice", "sum2")


def share_repeats(graph: OpGraph) -> OpGraph:
    """The graph without the nodes that repeat an earlier one; graph outputs keep their names."""
    first: dict[Hashable, str] = {}
    renamed: dict[str, str] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(renamed.get(name, name) for name in node.inputs))
        key = _key(graph, node)
        if key is not None and key in first and node.output not in graph.outputs:
            renamed[node.output] = first[key]
            continue
        if key is not None:
            first.setdefault(key, node.output)
        kept.append(node)
    tensors = {name: info for name, info in graph.tensors.items() if name not in renamed}
    return replace(graph, nodes=tuple(kept), tensors=tensors)


def _key(graph: OpGraph, node: Node) -> Hashable | None:
    """Equal for nodes with equal results; None for operators that are not compared."""
    if node.op not in _CHEAP_TO_COMPARE:
        return None
    info = graph.tensors[node.output]
    attrs = tuple(sorted((name, repr(value)) for name, value in node.attrs.items()))
    return node.op, node.inputs, info.shape, info.dtype, attrs, _rescale_key(node.rescale)


def _rescale_key(rescale: Rescale | None) -> Hashable:
    if rescale is None:
        return None
    arrays = (rescale.bias, rescale.scale)
    values = tuple(None if array is None else tuple(np.atleast_1d(array).tolist()) for array in arrays)
    others = (rescale.shift, rescale.zero_point, rescale.clip_min, rescale.clip_max, rescale.axis)
    return values, others, rescale.rounding, rescale.sum_bits
