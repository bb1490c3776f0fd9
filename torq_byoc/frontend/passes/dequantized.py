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
    """(codes - zero point) * scale as float64; None unless codes and parameters are all stored, and fit."""
    parameters = [editor.array(name) if name else None for name in node.input]
    if any(value is None for value, name in zip(parameters, node.input, strict=True) if name):
        return None
    codes, scale = np.asarray(parameters[0]), np.asarray(parameters[1])
    zero = parameters[2] if len(parameters) > 2 else None
    factors = _spread(scale, codes.shape, node)
    offsets = _spread(np.zeros((), np.int64) if zero is None else zero, codes.shape, node)
    if factors is None or offsets is None:
        return None
    return (codes.astype(np.int64) - offsets.astype(np.int64)) * factors.astype(np.float64)


def _spread(value: np.ndarray, shape: tuple[int, ...], node: onnx.NodeProto) -> np.ndarray | None:
    """A parameter in a shape that broadcasts against the codes; None where it does not fit them."""
    if value.size == 1:
        return value.reshape(())
    axis = int(attribute(node, "axis", 1)) % max(len(shape), 1) if len(shape) > 1 else 0
    block = blocks_of(node)
    if not shape or value.shape != (_blocked(shape, axis, block) if block > 0 else (shape[axis],)):
        return None
    if block > 0:
        return np.take(np.repeat(value, block, axis=axis), range(shape[axis]), axis=axis)
    return value.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _blocked(shape: tuple[int, ...], axis: int, block: int) -> tuple[int, ...]:
    return tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
