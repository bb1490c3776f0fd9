"""A multiplication and an addition per channel that no layer's weights can take become one depthwise 1x1 convolution.

Before: ``t = Mul(x, s: Cx1x1); y = Add(t, b: Cx1x1)``, x being N x C x H x W and no convolution's result
After:  ``y = Conv(x, s as C x 1 x 1 x 1, b, group=C)``

Networks with the normalization in front of the convolution (DenseNet) have these.  One operator instead of two is
one pass over the data, and one rounding.
"""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.frontend.passes.fold_affine import LAYERS


def affine_to_depthwise(editor: GraphEditor) -> int:
    """Returns the number of convolutions made.

    An affine map of a map that became a convolution just now waits for ``fold_affine`` to take it.
    """
    made: set[str] = set()
    return sum(_rewrite(node, editor, made) for node in editor.graph.node if node.op_type == "Mul")


def _rewrite(node: onnx.NodeProto, editor: GraphEditor, made: set[str]) -> bool:
    shape = editor.static_shape(node.output[0])
    addition = editor.sole_reader(node.output[0])
    if shape is None or len(shape) != 4 or addition is None or addition.op_type != "Add":
        return False
    scaled = _tensor_and_channels(node, shape, editor)
    shifted = _tensor_and_channels(addition, shape, editor)
    if scaled is None or shifted is None or shifted[0] != node.output[0]:
        return False
    if editor.static_shape(scaled[0]) != shape or shape[1] < 2 or scaled[0] in made or _folds(scaled[0], editor):
        return False
    made.add(addition.output[0])
    weights = editor.add_constant(scaled[1].reshape(-1, 1, 1, 1), f"{node.name}_factors")
    offsets = editor.add_constant(shifted[1], f"{addition.name}_offsets")
    convolution = editor.node("Conv", [scaled[0], weights, offsets], addition.output[0], addition)
    convolution.attribute.append(onnx.helper.make_attribute("group", shape[1]))
    editor.replace(addition, [convolution])
    return True


def _folds(name: str, editor: GraphEditor) -> bool:
    """Whether ``fold_affine`` moves what is done to a tensor into the layer that makes it."""
    layer = editor.producers.get(name)
    return layer is not None and layer.op_type in LAYERS and editor.sole_reader(name) is not None


def _tensor_and_channels(
    node: onnx.NodeProto, shape: tuple[int, ...], editor: GraphEditor
) -> tuple[str, np.ndarray] | None:
    """The operand that is a tensor, and the other one as one float32 number a channel."""
    for index in (0, 1):
        values = editor.array(node.input[1 - index])
        if values is None or values.dtype != np.float32 or editor.array(node.input[index]) is not None:
            continue
        full = (1,) * (4 - values.ndim) + values.shape
        if values.ndim <= 4 and full[1] == shape[1] and full[0] == full[2] == full[3] == 1:
            return node.input[index], values.reshape(-1)
    return None
