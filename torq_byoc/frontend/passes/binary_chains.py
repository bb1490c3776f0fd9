"""Min, Max and Sum of many inputs become chains of two-input nodes; a Sum of two is an Add.

Before: ``y = Sum(a, b, c)``
After:  ``t = Add(a, b); y = Add(t, c)``
"""

from __future__ import annotations

import onnx

from torq_byoc.frontend.passes.editor import GraphEditor

_BINARY = {"Sum": "Add", "Max": "Max", "Min": "Min"}


def binary_chains(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    changes = 0
    for node in editor.graph.node:
        count = len(node.input)
        if node.op_type in _BINARY and (count > 2 or (node.op_type == "Sum" and count == 2)):
            editor.replace(node, _chain(node, editor))
            changes += 1
    return changes


def _chain(node: onnx.NodeProto, editor: GraphEditor) -> list[onnx.NodeProto]:
    result, nodes = node.input[0], []
    for i, operand in enumerate(node.input[1:], start=2):
        last = i == len(node.input)
        output = node.output[0] if last else editor.fresh_name(f"{node.output[0]}_{i - 1}")
        nodes.append(editor.node(_BINARY[node.op_type], [result, operand], output, node))
        result = output
    return nodes
