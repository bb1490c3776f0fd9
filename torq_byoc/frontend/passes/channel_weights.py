"""Weights whose scales vary within an output channel become 16-bit weights with one scale a channel.

Before: ``w: INT8; y = MatMul(DequantizeLinear(xq), DequantizeLinear(w, s, axis=0, block_size=32))``
After:  ``v: INT16; y = MatMul(DequantizeLinear(xq), DequantizeLinear(v, t, axis=1))``

A sum over codes can only be scaled as a whole.  16 bits hold every weight to within 1 / 65534 of the largest one of
its channel, some hundredths of what rounding the result costs.  Weights in blocks that do not meet quantized data
become floats: no operator here scales by blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.dequantized import blocks_of, dequantized_values
from torq_byoc.frontend.passes.editor import GraphEditor

_LAST_CODE = 32767


def channel_weights(editor: GraphEditor) -> int:
    """Returns the number of dequantize nodes replaced."""
    return sum(_recode(node, editor) for node in editor.graph.node if node.op_type == "DequantizeLinear")


def _recode(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    scale, rank = editor.array(node.input[1]), len(editor.shapes.get(node.input[0], ()))
    if scale is None or len(editor.readers.get(node.output[0], [])) > 1:
        return False  # readers get copies of their own in ``split_dequantize``
    blocked, axis = blocks_of(node) > 0, _channel_axis(node, rank, editor)
    if not blocked and (axis is None or scale.size == 1 or axis == int(attribute(node, "axis", 1)) % max(rank, 1)):
        return False
    values = dequantized_values(node, editor)
    if values is None or not np.isfinite(values).all():
        return False
    if axis is None:
        editor.store_result(node.output[0], values.astype(scale.dtype), node)
        editor.remove(node)
    else:
        _replace(node, values, axis, editor)
    return True


def _channel_axis(node: onnx.NodeProto, rank: int, editor: GraphEditor) -> int | None:
    """The axis of the output channels if the node makes the weights of a layer with quantized data, else None."""
    reader = editor.sole_reader(node.output[0])
    if reader is None or reader.op_type not in _CHANNELS or reader.input[1] != node.output[0] or rank < 2:
        return None
    data = editor.producers.get(reader.input[0])
    if data is None or data.op_type != "DequantizeLinear" or editor.array(data.input[0]) is not None:
        return None
    turned = reader.op_type == "Gemm" and bool(attribute(reader, "transB", 0))
    return 0 if turned else _CHANNELS[reader.op_type] % rank


_CHANNELS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}


def _replace(node: onnx.NodeProto, values: np.ndarray, axis: int, editor: GraphEditor) -> None:
    others = tuple(i for i in range(values.ndim) if i != axis) if _by_channel(values, node, editor) else None
    peak = np.abs(values).max(axis=others, keepdims=True)
    scale = np.maximum(peak / _LAST_CODE, np.finfo(np.float32).tiny).astype(np.float32)
    codes = np.clip(np.rint(values / scale.astype(np.float64)), -_LAST_CODE, _LAST_CODE).astype(np.int16)
    vector = scale.reshape(-1) if scale.size > 1 else scale.reshape(())
    extra: dict[str, Any] = {"axis": axis} if scale.size > 1 else {}
    stored = [editor.add_constant(value, node.input[0]) for value in (codes, vector)]
    editor.replace(node, [editor.node("DequantizeLinear", stored, node.output[0], node, **extra)])


def _by_channel(values: np.ndarray, node: onnx.NodeProto, editor: GraphEditor) -> bool:
    """Whether a channel may have a scale of its own: not where matrices differ along leading dimensions."""
    reader = editor.sole_reader(node.output[0])
    assert reader is not None
    return reader.op_type != "MatMul" or math.prod(values.shape[:-2]) == 1
