"""4-bit integers become 8-bit ones of the same values: no machine here has arithmetic for less than a byte.

Before: ``w: INT4; y = DequantizeLinear(w, s, z: INT4); q = QuantizeLinear(x, t, u: INT4)``
After:  ``w: INT8; y = DequantizeLinear(w, s, z: INT8); q = QuantizeLinear(Clip(x, -(8 + u) t, (7 - u) t), t, u: INT8)``

The bounds of the Clip are the real values of the last codes of 4 bits, so what was cut off still is.  Models that
compute with 4-bit integers in any other way, or read or give them away, are left as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor

_WIDER: dict[int, np.dtype] = {TensorProto.INT4: np.dtype(np.int8), TensorProto.UINT4: np.dtype(np.uint8)}
_RANGES: dict[int, tuple[int, int]] = {TensorProto.INT4: (-8, 7), TensorProto.UINT4: (0, 15)}
MOVING = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
"""Operators whose results are elements of their first input (for Concat, of all), whatever these mean."""


def byte_codes(editor: GraphEditor) -> int:
    """Returns the number of stored tensors and quantize nodes that are wider now."""
    stored = [tensor for tensor in editor.graph.initializer if tensor.data_type in _WIDER]
    quantizers = [node for node in editor.graph.node if _made_type(node, editor) in _WIDER]
    if not _only_codes(editor):
        return 0
    for node in quantizers:
        _widen_quantizer(node, editor)
    for tensor in stored:
        values = numpy_helper.to_array(tensor).astype(_WIDER[tensor.data_type])
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return len(stored) + len(quantizers)


def _made_type(node: onnx.NodeProto, editor: GraphEditor) -> int:
    """The type that a QuantizeLinear gives; 0 for other nodes."""
    if node.op_type != "QuantizeLinear":
        return 0
    zero = editor.constants.get(node.input[2]) if len(node.input) > 2 else None
    return int(zero.data_type if zero is not None else attribute(node, "output_dtype", 0))


def _only_codes(editor: GraphEditor) -> bool:
    """Whether all 4-bit tensors are stored or quantized, moved, and dequantized, and their parameters constant."""
    four_bits = {name for name, kind in editor.types.items() if kind in _WIDER}
    if four_bits & (editor.input_names | editor.output_names):
        return False
    for node in editor.graph.node:
        if not four_bits & {*node.input, *node.output}:
            continue
        if node.op_type == "QuantizeLinear":
            scale = editor.array(node.input[1])
            if scale is None or scale.size != 1 or _made_type(node, editor) not in _WIDER:
                return False
        elif node.op_type != "DequantizeLinear" and node.op_type not in MOVING:
            return False
    return True


def _widen_quantizer(node: onnx.NodeProto, editor: GraphEditor) -> None:
    kind = _made_type(node, editor)
    scale = np.asarray(editor.array(node.input[1]))
    zero = editor.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    code = 0 if zero is None else int(zero.reshape(-1)[0])
    bounds = [
        editor.add_constant(((limit - code) * scale.reshape(())).astype(scale.dtype), f"{node.output[0]}_bound")
        for limit in _RANGES[kind]
    ]
    clipped = editor.fresh_name(f"{node.output[0]}_clipped")
    clip = editor.node("Clip", [node.input[0], *bounds], clipped, node)
    wide = editor.add_constant(np.full(scale.shape, code, _WIDER[kind]), f"{node.output[0]}_zero_point")
    kept: dict[str, Any] = {
        a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name != "output_dtype"
    }
    quantize = editor.node("QuantizeLinear", [clipped, node.input[1], wide], node.output[0], node, **kept)
    editor.replace(node, [clip, quantize])
