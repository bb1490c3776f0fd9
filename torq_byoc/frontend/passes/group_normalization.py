"""GroupNormalization becomes an InstanceNormalization of its groups, with gain and offset for each channel after it.

Before: ``y = GroupNormalization(x: NxCxHxW, scale, bias, num_groups=G)``
After:  ``g = Reshape(x, [0, G, -1]); n = InstanceNormalization(g, ones, zeros); c = Reshape(n, [0, C, -1])``
        ``y = Reshape(Add(Mul(c, scale: Cx1), bias: Cx1), Shape(x))``

Before operator set 21 scale and bias belong to groups, and are those of the InstanceNormalization.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor


def group_normalization(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    nodes = [node for node in editor.graph.node if node.op_type == "GroupNormalization"]
    for node in nodes:
        _rewrite(node, editor)
    return len(nodes)


def _rewrite(node: onnx.NodeProto, editor: GraphEditor) -> None:
    x, scale, bias = node.input
    groups = int(attribute(node, "num_groups", 1))
    dtype = helper.tensor_dtype_to_np_dtype(editor.types.get(scale, onnx.TensorProto.FLOAT))
    nodes: list[onnx.NodeProto] = []

    def emit(op_type: str, inputs: list[str], output: str | None = None, **attributes: float) -> str:
        result = output or editor.fresh_name(f"{node.output[0]}_{op_type.lower()}")
        nodes.append(editor.node(op_type, inputs, result, node, **attributes))
        return result

    def constant(array: np.ndarray) -> str:
        return editor.add_constant(array, f"{node.name}_constant")

    def reshaped(name: str, target: list[int]) -> str:
        return emit("Reshape", [name, constant(np.array(target, np.int64))])

    per_group = editor.opset < 21
    gain = scale if per_group else constant(np.ones(groups, dtype))
    offset = bias if per_group else constant(np.zeros(groups, dtype))
    epsilon = float(attribute(node, "epsilon", 1e-5))
    result = emit("InstanceNormalization", [reshaped(x, [0, groups, -1]), gain, offset], epsilon=epsilon)
    if not per_group:
        # The channel count is that of the scale, so that it need not be known here.
        channels = emit("Concat", [constant(np.array([0])), emit("Shape", [scale]), constant(np.array([-1]))], axis=0)
        rows = emit("Reshape", [result, channels])
        scaled = emit("Mul", [rows, reshaped(scale, [-1, 1])])
        result = emit("Add", [scaled, reshaped(bias, [-1, 1])])
    emit("Reshape", [result, emit("Shape", [x])], node.output[0])
    editor.replace(node, nodes)
