"""Every reader of a dequantized tensor gets a DequantizeLinear of its own.

Before: ``d = DequantizeLinear(q); a = Conv(d, w); y = Add(d, b)``
After:  ``d = DequantizeLinear(q); d_1 = DequantizeLinear(q); a = Conv(d, w); y = Add(d_1, b)``

A pattern that swallows a dequantize cannot do so while others read it; the quantized tensor is shared instead.
"""

from __future__ import annotations

import onnx

from torq_byoc.frontend.passes.editor import GraphEditor


def split_dequantize(editor: GraphEditor) -> int:
    """Returns the number of copies made."""
    return sum(_split(node, editor) for node in editor.graph.node if node.op_type == "DequantizeLinear")


def _split(node: onnx.NodeProto, editor: GraphEditor) -> int:
    name = node.output[0]
    places = [(user, i) for user in editor.readers.get(name, []) for i, read in enumerate(user.input) if read == name]
    keep = 0 if name in editor.output_names else 1
    for user, index in places[keep:]:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name, copy.output[0] = editor.fresh_name(node.name), editor.fresh_name(name)
        user.input[index] = copy.output[0]
        editor.insert_before(user, [copy])
    return max(0, len(places) - keep)
