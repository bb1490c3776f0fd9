"""Guards against NaN behind a DequantizeLinear are removed: codes are numbers.

Before: ``x = DequantizeLinear(q); y = Where(IsNaN(x), 0, x)``
After:  ``y = DequantizeLinear(q)``

PyTorch writes such a guard behind every softmax of an attention, and the NPU has no truth values.
"""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.frontend.graph import DEFAULT_DOMAINS
from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.frontend.passes.remove_dead import remove_dead

_MOST_CODES = 2.0**17
"""Distance of a code from its zero point, at most: times the scale that must be a number of fp32."""


def nan_guards(editor: GraphEditor) -> int:
    """Returns the number of guards removed."""
    return sum(_removed(node, editor) for node in editor.graph.node if _is(node, "Where"))


def without_nan_guards(model: onnx.ModelProto) -> onnx.ModelProto:
    """A quantized model without such guards; the given one is not changed."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    editor = GraphEditor(result)
    if not nan_guards(editor):
        return model
    editor.commit()
    editor = GraphEditor(result)
    remove_dead(editor)
    editor.commit()
    return result


def _removed(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    condition, data = editor.producers.get(node.input[0]), node.input[2]
    if condition is None or not _is(condition, "IsNaN") or not _is_number(condition.input[0], editor):
        return False
    shape = editor.static_shape(data)
    return shape is not None and shape == editor.static_shape(node.output[0]) and editor.bypass(node, data)


def _is(node: onnx.NodeProto, kind: str) -> bool:
    return node.op_type == kind and node.domain in DEFAULT_DOMAINS


def _is_number(name: str, editor: GraphEditor) -> bool:
    """Whether a tensor is dequantized, so that all of its elements are finite."""
    producer = editor.producers.get(name)
    if producer is None or not _is(producer, "DequantizeLinear"):
        return False
    scale = editor.array(producer.input[1])
    with np.errstate(over="ignore"):
        return scale is not None and bool(np.all(np.isfinite(np.float32(scale) * np.float32(_MOST_CODES))))
