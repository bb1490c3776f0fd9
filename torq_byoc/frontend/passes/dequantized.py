"""The real values of stored codes behind a DequantizeLinear, per tensor, along an axis or in blocks."""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor


def blocks_of(node: onnx.NodeProto) -> int:
    """Elements along the axis that share a scale; 0 where scales are not in blocks."""
    return int(attribute(node, "block_size", 0))


def dequantized_values(node: onnx.NodeProto, editor: GraphEditor) -> np.ndarray | None:
    """(codes - zero point) * scale as float64; None unless codes and parameters are all stored."""
    parameters = [editor.array(name) if name else None for name in node.input]
    if any(value is None for value, name in zip(parameters, node.input, strict=True) if name):
        return None
    codes, scale = np.asarray(parameters[0]), np.asarray(parameters[1])
    zero = parameters[2] if len(parameters) > 2 else None
    spread = [None if value is None else _spread(value, codes.shape, node) for value in (scale, zero)]
    centred = codes.astype(np.int64) - (0 if spread[1] is None else spread[1].astype(np.int64))
    return centred * np.asarray(spread[0]).astype(np.float64)


def _spread(value: np.ndarray, shape: tuple[int, ...], node: onnx.NodeProto) -> np.ndarray:
    """A parameter in a shape that broadcasts against the codes."""
    if value.size == 1:
        return value.reshape(())
    axis = int(attribute(node, "axis", 1)) % max(len(shape), 1) if len(shape) > 1 else 0
    if blocks_of(node):
        repeated = np.repeat(value, blocks_of(node), axis=axis)
        return np.take(repeated, range(shape[axis]), axis=axis)
    return value.reshape([-1 if i == axis else 1 for i in range(len(shape))])
