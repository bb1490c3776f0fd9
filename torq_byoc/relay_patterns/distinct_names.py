"""Names that differ between the partitions of a model: a schedule names nodes and tensors of all of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from torq_byoc.kernels.graph import OpGraph


def with_distinct_names(graph: OpGraph, nodes: Collection[str], tensors: Collection[str], suffix: str) -> OpGraph:
    """The graph with a suffix to the names that others have; inputs and outputs keep theirs.

    Args:
        graph: one partition.
        nodes, tensors: names of the other ones.
        suffix: no name of the graph ends in it.
    """
    bound = {*graph.inputs, *graph.outputs}
    renamed = {name: name + suffix for name in graph.tensors if name in tensors and name not in bound}
    if not renamed and not any(node.name in nodes for node in graph.nodes):
        return graph
    return replace(
        graph,
        tensors={
            renamed.get(name, name): replace(info, name=renamed.get(name, name)) for name, info in graph.tensors.items()
        },
        constants={renamed.get(name, name): value for name, value in graph.constants.items()},
        nodes=tuple(
            replace(
                node,
                name=node.name + suffix if node.name in nodes else node.name,
                inputs=tuple(renamed.get(name, name) for name in node.inputs),
                output=renamed.get(node.output, node.output),
            )
            for node in graph.nodes
        ),
    )
