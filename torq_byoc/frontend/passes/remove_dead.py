"""Nodes, stored tensors and optional results that no output depends on are removed; graph inputs stay.

Before: ``w = initializer; a = Relu(x); b = Exp(x); y, indices = MaxPool(a)``
After:  ``a = Relu(x); y = MaxPool(a)``
"""

from __future__ import annotations

import onnx

from torq_byoc.frontend.graph import captured_names, subgraphs
from torq_byoc.frontend.passes.editor import GraphEditor

_OPTIONAL_RESULTS = frozenset({"Dropout", "LayerNormalization", "MaxPool"})
"""Operators whose results after the first say nothing about the others."""


def remove_dead(editor: GraphEditor) -> int:
    """Returns the number of nodes, tensors and results removed."""
    needed = set(editor.output_names)
    results = 0
    for node in reversed(editor.graph.node):
        if any(name in needed for name in node.output if name):
            results += _drop_results(node, needed)
            needed.update(node.input)
            needed.update(name for inner in subgraphs(node) for name in captured_names(inner))
        else:
            editor.remove(node)
    kept = [tensor for tensor in editor.graph.initializer if tensor.name in needed]
    dead = len(editor.graph.initializer) - len(kept)
    if dead:
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del editor.graph.initializer[:]
        editor.graph.initializer.extend(copies)
    return editor.removed_count + dead + results


def _drop_results(node: onnx.NodeProto, needed: set[str]) -> int:
    """Drop optional results at the end that nothing reads."""
    dropped = 0
    while node.op_type in _OPTIONAL_RESULTS and len(node.output) > 1 and node.output[-1] not in needed:
        del node.output[-1]
        dropped += 1
    return dropped
