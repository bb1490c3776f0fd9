"""Softmax runs over one axis that it names, as operator sets from 13 on define it.

Before 13 it ran over all dimensions from its axis on, and over those from 1 on where it named none.

Before: ``y = Softmax(x)``, x being 2 x 3 x 4, in operator set 11
After:  ``y = Reshape(Softmax(Flatten(x), axis=1), [2, 3, 4])``; ``y = Softmax(x, axis=1)`` if x were 2 x 3 x 1

The new forms mean the same in both definitions, so whoever reads the model may know only one.
"""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.frontend.graph import DEFAULT_DOMAINS, attribute
from torq_byoc.frontend.passes.editor import GraphEditor

ONE_AXIS_SINCE = 13
"""Operator set from which on these operators run over one axis."""
_OPERATORS = frozenset({"Hardmax", "LogSoftmax", "Softmax"})


def one_axis_softmax(editor: GraphEditor) -> int:
    """Returns the number of nodes changed."""
    if editor.opset >= ONE_AXIS_SINCE:
        return 0
    nodes = [node for node in editor.graph.node if node.op_type in _OPERATORS and node.domain in DEFAULT_DOMAINS]
    return sum(_rewrite(node, editor) for node in nodes)


def _rewrite(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    shape = editor.static_shape(node.input[0])
    if shape is None:
        return False
    named = int(attribute(node, "axis", 1))
    first = min(named + len(shape) if named < 0 else named, len(shape) - 1)
    spread = [axis for axis in range(first, len(shape)) if shape[axis] != 1] or [first]
    if len(spread) > 1:
        flat = editor.node("Flatten", [node.input[0]], editor.fresh_name(f"{node.output[0]}_rows"), node, axis=first)
        result = editor.node(node.op_type, [flat.output[0]], editor.fresh_name(f"{node.output[0]}_flat"), node, axis=1)
        target = editor.add_constant(np.array(shape, np.int64), f"{node.output[0]}_shape")
        restored = editor.node("Reshape", [result.output[0], target], node.output[0], node)
        editor.insert_before(node, [flat, result, restored])
        editor.remove(node)
        result.name = node.name
        return True
    if attribute(node, "axis") == spread[0]:
        return False
    editor.replace(node, [editor.node(node.op_type, node.input, node.output[0], node, axis=spread[0])])
    return True
