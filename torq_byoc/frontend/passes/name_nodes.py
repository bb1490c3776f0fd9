"""Every node gets a name of its own.

Before: ``"" : Conv(x) -> a``, ``"n" : Relu(a) -> b``, ``"n" : Relu(b) -> c``
After:  ``"a" : Conv(x) -> a``, ``"n" : Relu(a) -> b``, ``"n_1" : Relu(b) -> c``
"""

from __future__ import annotations

import onnx


def name_nodes(graph: onnx.GraphProto) -> None:
    """Name unnamed nodes after their first output; number those whose name is taken. Sub-graphs included."""
    _name(graph, set(), {})


def _name(graph: onnx.GraphProto, taken: set[str], counts: dict[str, int]) -> None:
    """Name the nodes of a graph; ``counts`` has the last number given to each name, so that it is not sought again."""
    for node in graph.node:
        base = node.name or next((o for o in node.output if o), node.op_type)
        name, count = base, counts.get(base, 0)
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        counts[base] = count
        taken.add(name)
        node.name = name
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _name(attribute.g, taken, counts)
