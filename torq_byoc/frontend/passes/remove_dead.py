"""Nodes and stored tensors that no output depends on are removed; graph inputs stay.

Before: ``w = initializer; a = Relu(x); b = Exp(x); y = Neg(a)``
After:  ``a = Relu(x); y = Neg(a)``
"""

from __future__ import annotations

import onnx

from torq_byoc.frontend.graph import captured_names, subgraphs
from torq_byoc.frontend.passes.editor import GraphEditor


def remove_dead(editor: GraphEditor) -> int:
    """Returns the number of nodes and tensors removed."""
    needed = set(editor.output_names)
    for node in reversed(editor.graph.node):
        if any(name in needed for name in node.output if name):
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
    return editor.removed_count + dead
