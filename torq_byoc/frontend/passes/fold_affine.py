"""A constant multiplication or addition per channel moves into the weights of the layer before it.

Before: ``a = Conv(x, w, b); c = Mul(a, s: Cx1x1); y = Add(c, t: Cx1x1)``
After:  ``y = Conv(x, w * s, b * s + t)``

Conv, ConvTranspose, Gemm and (for factors) MatMul with stored float32 weights whose result has no other reader.
"""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def fold_affine(editor: GraphEditor) -> int:
    """Returns the number of Mul and Add nodes removed."""
    return sum(_fold(node, editor) for node in editor.graph.node if node.op_type in ("Mul", "Add", "Sub"))


def _fold(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    layer, values = _layer_and_constant(node, editor)
    if layer is None or values is None:
        return False
    weights = editor.array(layer.input[1])
    bias_name = layer.input[2] if len(layer.input) > 2 else ""
    bias = editor.array(bias_name)
    if weights is None or weights.dtype != np.float32 or (bias_name and bias is None):
        return False
    channels = _channels(layer, weights)
    vector = _per_channel(values, channels, len(editor.shapes.get(layer.output[0], ())), layer.op_type)
    if vector is None:
        return False
    if layer.op_type == "MatMul" and node.op_type != "Mul":
        return False
    if layer.op_type == "Gemm" and (attribute(layer, "alpha", 1.0) != 1.0 or attribute(layer, "beta", 1.0) != 1.0):
        return False
    offset = np.zeros(channels) if bias is None else np.broadcast_to(bias.astype(np.float64).reshape(-1), (channels,))
    if bias is not None and bias.size not in (1, channels):
        return False
    if node.op_type == "Mul":
        scaled = weights.astype(np.float64) * _along_output(vector, layer, weights)
        layer.input[1] = editor.add_constant(scaled.astype(np.float32), layer.input[1])
        offset = offset * vector
    else:
        offset = offset + (-vector if node.op_type == "Sub" else vector)
    if node.op_type != "Mul" or bias is not None:
        _set_bias(layer, editor.add_constant(offset.astype(np.float32), bias_name or f"{layer.name}_bias"))
    return editor.bypass(node, layer.output[0])


def _layer_and_constant(node: onnx.NodeProto, editor: GraphEditor) -> tuple[onnx.NodeProto | None, np.ndarray | None]:
    for index in (0, 1):
        source = editor.current(node.input[index])
        layer = editor.producers.get(source)
        values = editor.array(node.input[1 - index])
        if layer is None or values is None or layer.op_type not in LAYERS or values.dtype != np.float32:
            continue
        alone = editor.sole_reader(node.input[index]) is node
        if alone and (node.op_type != "Sub" or index == 0):
            return layer, values
    return None, None


def _channels(layer: onnx.NodeProto, weights: np.ndarray) -> int:
    if layer.op_type == "Conv":
        return weights.shape[0]
    if layer.op_type == "ConvTranspose":
        return weights.shape[1] * int(attribute(layer, "group", 1))
    if layer.op_type == "Gemm" and attribute(layer, "transB", 0):
        return weights.shape[0]
    return weights.shape[-1]


def _per_channel(values: np.ndarray, channels: int, rank: int, op_type: str) -> np.ndarray | None:
    """The constant as one number a channel; None when it varies along another axis or would widen the result."""
    axis = rank - 1 if op_type in ("Gemm", "MatMul") else 1
    if values.ndim > rank or rank < 2:
        return None
    full = (1,) * (rank - values.ndim) + values.shape
    if any(n != 1 for i, n in enumerate(full) if i != axis) or full[axis] not in (1, channels):
        return None
    return np.broadcast_to(values.astype(np.float64).reshape(-1), (channels,))


def _along_output(vector: np.ndarray, layer: onnx.NodeProto, weights: np.ndarray) -> np.ndarray:
    """The factors shaped so that they multiply the weights' output axis."""
    if layer.op_type == "Conv":
        return vector.reshape((-1,) + (1,) * (weights.ndim - 1))
    if layer.op_type == "ConvTranspose":
        groups = int(attribute(layer, "group", 1))
        spread = np.repeat(vector.reshape(groups, -1), weights.shape[0] // groups, axis=0)
        return spread.reshape(weights.shape[:2] + (1,) * (weights.ndim - 2))
    return vector[:, None] if attribute(layer, "transB", 0) else vector


def _set_bias(layer: onnx.NodeProto, name: str) -> None:
    if len(layer.input) > 2:
        layer.input[2] = name
    else:
        layer.input.append(name)
