"""Two transposes in a row become one, a reshape of a reshape the outer one, and some transposes are reshapes.

Before: ``b = Transpose(a, perm=[0, 3, 1, 2]); y = Transpose(b, perm=[0, 2, 3, 1])``
After:  ``y = Transpose(a, perm=[0, 1, 2, 3])``, which ``remove_identities`` drops

Before: ``b = Flatten(a); y = Reshape(b, [1, 4, 5])``
After:  ``y = Reshape(a, [1, 4, 5])``

Before: ``y = Transpose(a: 1x64x1x1, perm=[0, 2, 3, 1])``
After:  ``y = Reshape(a, [1, 1, 1, 64])``
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor

_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def merge_transposes(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    return sum(_merge(node, editor) or _only_moves_ones(node, editor) for node in editor.graph.node if node.input)


def _merge(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    inner = editor.producers.get(node.input[0])
    if inner is None:
        return False
    if node.op_type == "Transpose" and inner.op_type == "Transpose":
        first, second = attribute(inner, "perm"), attribute(node, "perm")
        if not isinstance(first, list) or not isinstance(second, list):
            return False
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("perm", [first[i] for i in second]))
        node.input[0] = inner.input[0]
        return True
    if node.op_type in _RESHAPES and inner.op_type in _RESHAPES:
        return _reshaped(node, inner.input[0], editor)
    return False


def _only_moves_ones(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    """A transpose that keeps the order of all dimensions larger than 1."""
    shape, perm = editor.static_shape(node.input[0]), attribute(node, "perm")
    if node.op_type != "Transpose" or shape is None or not isinstance(perm, list) or perm == sorted(perm):
        return False
    moved = [axis for axis in perm if shape[axis] != 1]
    return moved == sorted(moved) and _reshaped(node, node.input[0], editor)


def _reshaped(node: onnx.NodeProto, source: str, editor: GraphEditor) -> bool:
    shape = editor.static_shape(node.output[0])
    if shape is None or 0 in shape:
        return False
    target = editor.add_constant(np.array(shape, np.int64), f"{node.output[0]}_shape")
    editor.replace(node, [editor.node("Reshape", [source, target], node.output[0], node)])
    return True
