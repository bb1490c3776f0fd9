"""What passes over an operator graph have in common: new names, and tensors that nobody needs any more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from torq_byoc.kernels.graph import OpGraph


def fresh_name(name: str, known: Collection[str]) -> str:
    """The name, or the first of its kind that is not known."""
    while name in known:
        name += "_"
    return name


def without_unused(graph: OpGraph) -> OpGraph:
    """The graph without tensors and constants that no node, input or output names."""
    used = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        used.update((*node.inputs, node.output))
    return replace(
        graph,
        tensors={name: info for name, info in graph.tensors.items() if name in used},
        constants={name: value for name, value in graph.constants.items() if name in used},
    )
