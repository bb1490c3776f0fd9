"""A tensor without elements is known before anything runs, so it becomes a stored one.

Before: ``a, e = Split(x, [4, 0]); y = Concat(a, e)``
After:  ``a, unused = Split(x, [4, 0]); y = Concat(a)``
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper

from torq_byoc.frontend.graph import subgraphs
from torq_byoc.frontend.passes.editor import GraphEditor


def empty_tensors(editor: GraphEditor) -> int:
    """Returns the number of results stored and of operands dropped."""
    changes = 0
    for node in editor.graph.node:
        changes += _store_results(node, editor)
        if node.op_type == "Concat":
            changes += _drop_operands(node, editor)
    return changes


def _is_empty(name: str, editor: GraphEditor) -> bool:
    shape = editor.static_shape(name) if name else None
    return shape is not None and math.prod(shape) == 0


def _store_results(node: onnx.NodeProto, editor: GraphEditor) -> int:
    """Store the node's empty results; the node goes when it has no others."""
    if any(True for _ in subgraphs(node)) or (node.op_type == "Identity" and node.input[0] in editor.constants):
        return 0
    needed = editor.output_names.union(editor.readers)
    empty = [i for i, name in enumerate(node.output) if name in needed and _is_empty(name, editor)]
    empty = [i for i in empty if editor.types.get(node.output[i])]
    if not empty:
        return 0
    for i in empty:
        name = node.output[i]
        dtype = helper.tensor_dtype_to_np_dtype(editor.types[name])
        editor.store_result(name, np.zeros(editor.static_shape(name) or (), dtype), node)
        node.output[i] = editor.fresh_name(f"{name}_empty")
    if len(empty) == sum(bool(name) for name in node.output):
        editor.remove(node)
    return len(empty)


def _drop_operands(node: onnx.NodeProto, editor: GraphEditor) -> int:
    kept = [name for name in node.input if not _is_empty(name, editor)]
    dropped = len(node.input) - len(kept)
    if not dropped or not kept:
        return 0
    del node.input[:]
    node.input.extend(kept)
    return dropped
