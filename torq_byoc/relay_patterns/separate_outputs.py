"""Give every result of a partition memory of its own.

    y = reshape(x), x a parameter or a result too      becomes    y = copy(reshape(x))

A reshape only renames the bytes of its input.  That is free inside a partition; at its border it would make
two bindings, which the caller is free to place apart, share one address.
"""

from __future__ import annotations

from dataclasses import replace

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.relay_patterns.graph_editing import fresh_name


def separate_outputs(graph: OpGraph) -> OpGraph:
    """The graph with a copy behind every output that shares its bytes with an input, a constant or another output."""
    root = graph.storage_roots()
    taken = {*graph.inputs, *graph.constants}
    tensors, copies, outputs = dict(graph.tensors), [], []
    for name in graph.outputs:
        if root[name] in taken:
            info = graph.tensors[name]
            copy = fresh_name(f"{name}_copy", tensors)
            tensors[copy] = replace(info, name=copy)
            origin = next((node.origin for node in graph.nodes if node.output == name), "")
            attrs = {"begin": (0,) * len(info.shape), "step": (1,) * len(info.shape)}
            copies.append(Node(copy, "slice", (name,), copy, attrs, None, origin))
            name = copy
        else:
            taken.add(root[name])
        outputs.append(name)
    return replace(graph, outputs=tuple(outputs), tensors=tensors, nodes=(*graph.nodes, *copies))
