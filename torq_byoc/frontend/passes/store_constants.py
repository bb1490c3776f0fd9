"""Constant nodes become stored tensors, and stored tensors stop being graph inputs.

Before: ``inputs: x, w; w = initializer; c = Constant(); y = Add(x, c)``
After:  ``inputs: x; w, c = initializers; y = Add(x, c)``
"""

from __future__ import annotations

from torq_byoc.frontend.graph import DEFAULT_DOMAINS
from torq_byoc.frontend.passes.editor import GraphEditor


def store_constants(editor: GraphEditor) -> int:
    """Returns the number of nodes and inputs that became stored tensors."""
    stored = {tensor.name for tensor in editor.graph.initializer}
    inputs = [value for value in editor.graph.input if value.name not in stored]
    changes = len(editor.graph.input) - len(inputs)
    if changes:
        kept = [type(value).FromString(value.SerializeToString()) for value in inputs]
        del editor.graph.input[:]
        editor.graph.input.extend(kept)
    for node in editor.graph.node:
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS and node.output[0] in editor.constants:
            tensor = editor.graph.initializer.add()
            tensor.CopyFrom(editor.constants[node.output[0]])
            tensor.name = node.output[0]
            editor.remove(node)
            changes += 1
    return changes
