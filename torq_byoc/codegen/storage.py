"""Which tensors share memory: reshape-like nodes give a second name to the bytes of their input."""

from __future__ import annotations

from collections.abc import Mapping

from torq_byoc.kernels.graph import OpGraph

ALIAS_OPS = frozenset({"reshape", "bitcast"})


def storage_roots(graph: OpGraph) -> Mapping[str, str]:
    """For every tensor the tensor whose bytes it is: itself unless an alias node made it."""
    roots = {name: name for name in graph.tensors}
    for node in graph.nodes:
        if node.op in ALIAS_OPS:
            roots[node.output] = roots[node.inputs[0]]
    return roots
