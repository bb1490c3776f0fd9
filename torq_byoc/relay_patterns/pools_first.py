"""Pool before a function that never falls, not after it.

    weighted_max, table, ... -> maxpool, stride 2   becomes   maxpool -> weighted_max, table, ...

The largest of some results is the result of the largest argument, and fewer elements are left to compute.  Whether a
function of 8-bit codes falls anywhere is found by asking for all 256 of them, channel by channel.  Exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.windows import window_axes
from torq_byoc.relay_patterns.code_shift import code_shift
from torq_byoc.relay_patterns.graph_editing import fresh_name

_FUNCTIONS = frozenset({"act", "table", "weighted_max", "weighted_sum", "maximum", "minimum", "sum2"})


def pool_first(graph: OpGraph) -> OpGraph:
    """The graph with max pools in front of the functions that they may go before."""
    for pool in [node for node in graph.nodes if node.op == "maxpool"]:
        function = _function_before(graph, pool) if _only_selects(graph, pool) else None
        if function is not None and _never_falls(graph, function):
            graph = _exchanged(graph, pool, function)
    return graph


@dataclass(frozen=True)
class _Function:
    """Element-wise nodes, in graph order, that compute a tensor from the codes of one other."""

    source: str
    nodes: Sequence[Node]


def _only_selects(graph: OpGraph, pool: Node) -> bool:
    """Whether a pool gives fewer codes, unchanged, each of at least one element."""
    source, result, rescale = graph.tensors[pool.inputs[0]], graph.tensors[pool.output], pool.rescale
    if source.dtype is not result.dtype or source.dtype.size != 1 or math.prod(result.shape) >= math.prod(source.shape):
        return False
    shift = None if rescale is None else code_shift(rescale, source.dtype, result.dtype)
    plain = rescale is None or (shift is not None and shift.changes_nothing(source.dtype, result.dtype))
    walkable = all(axis.is_walkable for axis in window_axes(graph, pool, pool.attrs["kernel"]))
    return plain and walkable and pool.attrs["pad_value"] <= source.dtype.integer_range[0]


def _function_before(graph: OpGraph, pool: Node) -> _Function | None:
    """The fewest nodes that make the pool's input from one tensor of bytes, and that nobody else has a use for."""
    makers = {node.output: node for node in graph.nodes}
    readers = graph.consumers()
    shape = graph.tensors[pool.inputs[0]].shape
    inside: dict[str, Node] = {}
    sources = [pool.inputs[0]]
    while not inside or len(sources) > 1:
        members = {pool.name, *inside}
        more = {
            maker.name: maker
            for name in sources
            if (maker := makers.get(name)) is not None
            and _is_function(graph, maker, shape)
            and name not in graph.outputs
            and all(reader.name in members for reader in readers[name])
        }
        if not more:
            return None
        inside |= more
        made = {node.output for node in inside.values()}
        read = dict.fromkeys(name for node in inside.values() for name in node.inputs if name not in graph.constants)
        sources = [name for name in read if name not in made]
    (source,) = sources
    if graph.tensors[source].dtype.size != 1 or graph.tensors[source].shape != shape:
        return None
    return _Function(source, [node for node in graph.nodes if node.name in inside])


def _is_function(graph: OpGraph, node: Node, shape: tuple[int, ...]) -> bool:
    """Whether a node works element by element, the same on all pixels of a channel."""
    if node.op not in _FUNCTIONS or graph.tensors[node.output].shape != shape:
        return False
    axes = {node.rescale.axis if node.rescale else None}
    constants = [graph.constants[name] for name in node.inputs if name in graph.constants]
    if node.op.startswith("weighted"):
        axes |= {node.attrs["axis"]} if constants[0].shape[1] > 1 else set()
    elif any(size != 1 for value in constants for size in value.shape[-2:]):
        return False
    return axes <= {None, 1}


def _never_falls(graph: OpGraph, function: _Function) -> bool:
    """Whether a larger code of the source never gives a smaller result, in any channel."""
    info = graph.tensors[function.source]
    low, high = info.dtype.integer_range
    plane = (1, info.shape[1], 16, 16)
    codes = np.arange(low, high + 1).reshape(1, 1, 16, 16)
    values = {**graph.constants, function.source: np.broadcast_to(codes, plane).astype(info.dtype.numpy)}
    probe = _with_shape(graph, function, plane)
    for node in function.nodes:
        values[node.output] = kernel_for(node.op).reference(probe, node, [values[name] for name in node.inputs])
    results = values[function.nodes[-1].output].reshape(info.shape[1], -1).astype(np.int64)
    return bool(np.all(np.diff(results, axis=1) >= 0))


def _with_shape(graph: OpGraph, function: _Function, shape: tuple[int, ...]) -> OpGraph:
    """The graph with the function's tensors in another shape."""
    names = (function.source, *(node.output for node in function.nodes))
    return replace(graph, tensors={**graph.tensors, **{n: replace(graph.tensors[n], shape=shape) for n in names}})


def _exchanged(graph: OpGraph, pool: Node, function: _Function) -> OpGraph:
    """The graph with the pool in front of the function."""
    source = graph.tensors[function.source]
    pooled = fresh_name(f"{function.source}_{pool.name}", graph.tensors)
    shape = graph.tensors[pool.output].shape
    attrs = {**pool.attrs, "pad_value": source.dtype.integer_range[0]}
    first = replace(pool, inputs=(function.source,), output=pooled, attrs=attrs, rescale=None)
    moved = {
        node.name: _renamed(node, {function.source: pooled, pool.inputs[0]: pool.output}) for node in function.nodes
    }
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name == function.nodes[0].name:
            nodes.append(first)
        if node.name != pool.name:
            nodes.append(moved.get(node.name, node))
    tensors = {name: info for name, info in graph.tensors.items() if name != pool.inputs[0]}
    tensors[pooled] = replace(source, name=pooled, shape=shape, scale=None)
    for node in function.nodes[:-1]:
        tensors[node.output] = replace(tensors[node.output], shape=shape, scale=None)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    inputs = tuple(names.get(name, name) for name in node.inputs)
    return replace(node, inputs=inputs, output=names.get(node.output, node.output))
