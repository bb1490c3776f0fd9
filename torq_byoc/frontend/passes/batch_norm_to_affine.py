"""BatchNormalization (inference) becomes a multiplication and an addition per channel.

Before: ``y = BatchNormalization(x, gamma, beta, mean, var)``
After:  ``t = Mul(x, gamma / sqrt(var + eps)); y = Add(t, beta - mean * gamma / sqrt(var + eps))``

``fold_affine`` then moves both into the weights of the convolution before it, where there is one.
"""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor


def batch_norm_to_affine(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    return sum(_rewrite(node, editor) for node in editor.graph.node if node.op_type == "BatchNormalization")


def _rewrite(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    parameters = [editor.array(name) for name in node.input[1:5]]
    rank = len(editor.shapes.get(node.input[0], ()))
    used = any(name in editor.readers or name in editor.output_names for name in node.output[1:] if name)
    if len(parameters) != 4 or any(p is None for p in parameters) or rank < 2 or used:
        return False
    if attribute(node, "training_mode", 0) or any(p.dtype != np.float32 for p in parameters if p is not None):
        return False
    gamma, beta, mean, var = (p.astype(np.float64) for p in parameters if p is not None)
    scale = gamma / np.sqrt(var + float(attribute(node, "epsilon", 1e-5)))
    shape = (-1,) + (1,) * (rank - 2)
    factor = editor.add_constant(scale.astype(np.float32).reshape(shape), f"{node.name}_scale")
    offset = editor.add_constant((beta - mean * scale).astype(np.float32).reshape(shape), f"{node.name}_offset")
    scaled = editor.fresh_name(f"{node.output[0]}_scaled")
    editor.replace(
        node,
        [
            editor.node("Mul", [node.input[0], factor], scaled, node),
            editor.node("Add", [scaled, offset], node.output[0], node),
        ],
    )
    return True
