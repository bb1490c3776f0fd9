"""Transpose graph inputs while they are loaded.

    transpose (graph input, to NCHW) -> conv2d   becomes   conv2d of the input in another order

A transfer walks XRAM with strides of its own for every axis, whereas slices gather transposed elements four a cycle.
Only where one operator reads the result: several would each load it.  Exact.
"""

from __future__ import annotations

from dataclasses import replace

from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph


def load_in_order(graph: OpGraph) -> OpGraph:
    """The graph with ``reordered`` in place of transpositions of its inputs."""
    readers = graph.consumers()

    def is_loaded(node: Node) -> bool:
        if node.op != "transpose" or node.inputs[0] not in graph.inputs or node.output in graph.outputs:
            return False
        after = readers[node.output]
        return len(after) == 1 and after[0].op not in ALIAS_OPS

    return replace(
        graph, nodes=tuple(replace(node, op="reordered") if is_loaded(node) else node for node in graph.nodes)
    )
