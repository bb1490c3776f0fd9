"""MeanVarianceNormalization becomes a mean, a deviation from it and a division.

Before: ``y = MeanVarianceNormalization(x, axes=[0, 2, 3])``
After:  ``c = Sub(x, ReduceMean(x)); y = Div(c, Add(Sqrt(ReduceMean(Mul(c, c))), 1e-9))``

ONNX writes the variance as the difference of two means, which has no digits left where they are close.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor

_EPSILON = 1e-9
"""Keeps a constant input finite; the value of the ONNX definition."""


def mean_variance(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    nodes = [node for node in editor.graph.node if node.op_type == "MeanVarianceNormalization"]
    for node in nodes:
        _rewrite(node, editor)
    return len(nodes)


def _rewrite(node: onnx.NodeProto, editor: GraphEditor) -> None:
    axes = attribute(node, "axes", [0, 2, 3])
    dtype = helper.tensor_dtype_to_np_dtype(editor.types.get(node.input[0], onnx.TensorProto.FLOAT))
    nodes: list[onnx.NodeProto] = []

    def emit(op_type: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        result = output or editor.fresh_name(f"{node.output[0]}_{op_type.lower()}")
        nodes.append(editor.node(op_type, inputs, result, node, **attributes))
        return result

    def mean(name: str) -> str:
        if editor.opset < 18:
            return emit("ReduceMean", [name], axes=axes)
        return emit("ReduceMean", [name, editor.add_constant(np.array(axes, np.int64), f"{node.name}_axes")])

    centred = emit("Sub", [node.input[0], mean(node.input[0])])
    deviation = emit("Sqrt", [mean(emit("Mul", [centred, centred]))])
    epsilon = editor.add_constant(np.array(_EPSILON, dtype), f"{node.name}_epsilon")
    emit("Div", [centred, emit("Add", [deviation, epsilon])], node.output[0])
    editor.replace(node, nodes)
