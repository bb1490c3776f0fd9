"""Order a dense layer's weights by the tensor it flattens, instead of the tensor by the weights.

    transpose -> reshape [N, K] -> matmul (b [K, M])   becomes   reshape -> matmul (rows of b in the old order)

Exact: a sum does not depend on the order of its terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.relay_patterns.graph_editing import fresh_name, without_unused


def flatten_in_order(graph: OpGraph) -> OpGraph:
    """The graph without transpositions that, flattened, one integer dense layer reads and nobody else."""
    readers = graph.consumers()
    makers = {node.output: node for node in graph.nodes if len(readers[node.output]) == 1}
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    changed: dict[str, Node | None] = {}
    for dense in graph.nodes:
        flat = _maker(graph, makers, dense, "reshape") if dense.op == "matmul" else None
        swap = _maker(graph, makers, flat, "transpose") if flat else None
        if flat is None or swap is None or not _keeps_rows(graph, swap, flat, dense):
            continue
        weights = dense.inputs[1]
        name = fresh_name(f"{weights}_{dense.name}", tensors)
        constants[name] = _reordered(graph, swap, graph.constants[weights])
        tensors[name] = replace(tensors[weights], name=name)
        tensors[flat.output] = replace(tensors[flat.output], scale=None)
        changed[swap.name] = None
        changed[flat.name] = replace(flat, inputs=swap.inputs)
        changed[dense.name] = replace(dense, inputs=(flat.output, name))
    nodes = tuple(kept for node in graph.nodes if (kept := changed.get(node.name, node)) is not None)
    return without_unused(replace(graph, nodes=nodes, tensors=tensors, constants=constants))


def _maker(graph: OpGraph, makers: Mapping[str, Node], node: Node, op: str) -> Node | None:
    """The node that makes a node's first input for it alone, if it is of that operator."""
    maker = makers.get(node.inputs[0])
    return maker if maker is not None and maker.op == op and maker.output not in graph.outputs else None


def _keeps_rows(graph: OpGraph, swap: Node, flat: Node, dense: Node) -> bool:
    """Whether rows of the flattened tensor are what they were before the transposition, but for their order; float
    sums are rounded, and so have one."""
    shape, flattened = graph.tensors[swap.output].shape, graph.tensors[flat.output].shape
    weights = graph.constants.get(dense.inputs[1])
    if weights is None or weights.ndim != 2 or graph.tensors[swap.output].dtype.is_float:
        return False
    return swap.attrs["perm"][0] == 0 and flattened == (shape[0], weights.shape[0])


def _reordered(graph: OpGraph, swap: Node, weights: np.ndarray) -> np.ndarray:
    """Weights whose rows follow the tensor before the transposition."""
    spread = weights.reshape(*graph.tensors[swap.output].shape[1:], weights.shape[1])
    back = np.argsort(swap.attrs["perm"][1:])
    return np.ascontiguousarray(spread.transpose(*back, len(back))).reshape(weights.shape)
