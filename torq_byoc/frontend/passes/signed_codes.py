"""Unsigned 16-bit codes become signed ones, with zero points as much lower: what the machine multiplies is signed.

Before: ``q = QuantizeLinear(x, s, z: UINT16); y = DequantizeLinear(Transpose(q), s, z)``
After:  ``q = QuantizeLinear(x, s, z - 32768: INT16); y = DequantizeLinear(Transpose(q), s, z - 32768)``

Inputs and outputs of the model keep their type; the CPU moves their codes.  Models that compute with unsigned 16-bit
numbers in any other way are left as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from torq_byoc.frontend.passes.byte_codes import MOVING
from torq_byoc.frontend.passes.editor import GraphEditor

_HALF = 1 << 15


def signed_codes(editor: GraphEditor) -> int:
    """Returns the number of nodes and stored tensors changed."""
    unsigned = {name for name, kind in editor.types.items() if kind == TensorProto.UINT16}
    touching = [node for node in editor.graph.node if unsigned & {*node.input, *node.output}]
    if not touching or not all(_carries_codes(node, editor) for node in touching):
        return 0
    stored = [tensor for tensor in editor.graph.initializer if tensor.data_type == TensorProto.UINT16]
    for tensor in stored:
        shifted = (numpy_helper.to_array(tensor).astype(np.int32) - _HALF).astype(np.int16)
        tensor.CopyFrom(numpy_helper.from_array(shifted, tensor.name))
    for node in touching:
        if node.op_type in _PARAMETRIC:
            _name_zero_point(node, editor)
    for name in sorted(unsigned & editor.input_names):
        _shift_input(name, editor)
    for name in sorted(unsigned & editor.output_names):
        _shift_output(name, editor)
    return len(touching) + len(stored)


_PARAMETRIC = ("QuantizeLinear", "DequantizeLinear")


def _carries_codes(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    """Whether a node quantizes, dequantizes or moves codes, and does not compute with them."""
    if node.op_type not in _PARAMETRIC:
        return node.op_type in MOVING
    return len(node.input) < 3 or not node.input[2] or node.input[2] in editor.constants


def _name_zero_point(node: onnx.NodeProto, editor: GraphEditor) -> None:
    """A zero point that is left out is 0, which now is the lowest code."""
    if len(node.input) < 3 or not node.input[2]:
        shape = editor.static_shape(node.input[1]) or ()
        zero = editor.add_constant(np.full(shape, -_HALF, np.int16), f"{node.output[0]}_zero_point")
        scale = node.input[1]
        del node.input[1:]
        node.input.extend([scale, zero])
    kept = [a for a in node.attribute if a.name != "output_dtype" or node.op_type != "QuantizeLinear"]
    copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(copies)


def _shift_input(name: str, editor: GraphEditor) -> None:
    first = editor.readers[name][0]
    nodes, shifted = _moved(name, editor.fresh_name(f"{name}_signed"), -_HALF, TensorProto.INT16, first, editor)
    for node in editor.readers[name]:
        _rename(node.input, name, shifted)
    editor.insert_before(editor.graph.node[0], nodes)


def _shift_output(name: str, editor: GraphEditor) -> None:
    producer = editor.producers[name]
    signed = editor.fresh_name(f"{name}_signed")
    copy = onnx.NodeProto()
    copy.CopyFrom(producer)
    copy.name = editor.fresh_name(producer.name)
    _rename(copy.output, name, signed)
    for node in editor.readers.get(name, []):
        _rename(node.input, name, signed)
    nodes, _ = _moved(signed, name, _HALF, TensorProto.UINT16, producer, editor)
    editor.replace(producer, [copy, *nodes])


def _rename(names: Any, old: str, new: str) -> None:
    for position, name in enumerate(names):
        if name == old:
            names[position] = new


def _moved(
    source: str, target: str, distance: int, kind: int, like: onnx.NodeProto, editor: GraphEditor
) -> tuple[list[onnx.NodeProto], str]:
    """Nodes that add ``distance`` to codes, and the name of their result."""
    wide, sums = editor.fresh_name(f"{source}_wide"), editor.fresh_name(f"{source}_moved")
    step = editor.add_constant(np.array(distance, np.int32), f"{source}_distance")
    nodes = [
        editor.node("Cast", [source], wide, like, to=TensorProto.INT32),
        editor.node("Add", [wide, step], sums, like),
        editor.node("Cast", [sums], target, like, to=kind),
    ]
    return nodes, target
