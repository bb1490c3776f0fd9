"""Models whose weights alone are quantized: their floats, and the codes that these floats were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.dequantized import blocks_of, dequantized_values
from torq_byoc.frontend.passes.editor import GraphEditor


@dataclass(frozen=True, eq=False)
class StoredWeights:
    """Quantized weights: float = (code - zero point) * scale.

    Attributes:
        values: the floats, as float32.
        codes: int64, less their zero points; the shape of the weights.
        scale: float32, one value or one along ``axis``.
        axis: None for one scale.
    """

    values: np.ndarray
    codes: np.ndarray
    scale: np.ndarray
    axis: int | None


def float_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every stored tensor behind a DequantizeLinear as floats; the given one where there is none."""
    if not any(node.op_type == "DequantizeLinear" for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    editor = GraphEditor(result)
    for node, values in _dequantized(editor):
        editor.store_result(node.output[0], values, node)
        editor.remove(node)
    editor.commit()
    return result


def stored_weights(model: onnx.ModelProto) -> dict[str, StoredWeights]:
    """By the name of the floats: all weights that are stored as codes with scales along one axis at most."""
    editor = GraphEditor(model)
    found = {}
    for node, values in _dequantized(editor):
        scale, zero = np.asarray(editor.array(node.input[1])), _zero_point(node, editor)
        if blocks_of(node) or values.dtype != np.float32 or scale.dtype != np.float32:
            continue
        codes = np.asarray(editor.array(node.input[0])).astype(np.int64)
        axis = int(attribute(node, "axis", 1)) % max(codes.ndim, 1) if scale.size > 1 else None
        if axis is not None and zero.ndim:
            zero = zero.reshape([-1 if i == axis else 1 for i in range(codes.ndim)])
        vector = scale.reshape(()) if axis is None else scale
        found[node.output[0]] = StoredWeights(values, codes - zero, vector, axis)
    return found


def _dequantized(editor: GraphEditor) -> Iterator[tuple[onnx.NodeProto, np.ndarray]]:
    for node in editor.graph.node:
        values = dequantized_values(node, editor) if node.op_type == "DequantizeLinear" else None
        if values is not None:
            yield node, values.astype(np.asarray(editor.array(node.input[1])).dtype)


def _zero_point(node: onnx.NodeProto, editor: GraphEditor) -> np.ndarray:
    zero = editor.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    return np.zeros((), np.int64) if zero is None else zero.astype(np.int64).reshape(-1 if zero.size > 1 else ())
