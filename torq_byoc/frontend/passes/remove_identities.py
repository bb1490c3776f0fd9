"""Nodes that change nothing are removed.

Before: ``a = Relu(x); b = Identity(a); c = Cast(b, to=its own type); y = Reshape(c, its own shape)``
After:  ``y = Relu(x)``

Also Dropout (inference), Transpose that permutes nothing, Pad by zeros, Expand and the
reshapes to the same shape, Concat and Sum of one tensor.
"""

from __future__ import annotations

import onnx

from torq_byoc.frontend.graph import DEFAULT_DOMAINS, attribute
from torq_byoc.frontend.passes.editor import GraphEditor


def remove_identities(editor: GraphEditor) -> int:
    """Returns the number of nodes removed."""
    return sum(
        _changes_nothing(node, editor) and editor.bypass(node, node.input[0])
        for node in editor.graph.node
        if node.domain in DEFAULT_DOMAINS and node.input
    )


def _changes_nothing(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    kind = node.op_type
    if kind == "Identity":
        return True
    if kind == "Dropout":
        return _dropout_is_off(node, editor)
    if kind in ("Concat", "Sum", "Max", "Min", "Mean"):
        return len(node.input) == 1
    if kind == "Cast":
        return editor.types.get(node.input[0]) == attribute(node, "to")
    if kind == "Transpose":
        perm = attribute(node, "perm")
        return isinstance(perm, list) and perm == sorted(perm)
    if kind == "Pad":
        pads = editor.array(node.input[1]) if len(node.input) > 1 else attribute(node, "pads")
        return pads is not None and not any(int(p) for p in pads)
    if kind in ("Reshape", "Expand", "Squeeze", "Unsqueeze", "Flatten"):
        before = editor.static_shape(node.input[0])
        return before is not None and before == editor.static_shape(node.output[0])
    return False


def _dropout_is_off(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    if any(name for name in node.output[1:] if name in editor.readers or name in editor.output_names):
        return False  # somebody wants the mask
    if len(node.input) < 3 or not node.input[2]:
        return True
    training = editor.array(node.input[2])
    return training is not None and not bool(training)
