"""QuantizeLinear and DequantizeLinear: scales and zero points that the arithmetic can express.

onnx's checker and onnxruntime accept a scale of zero, negative or NaN, and scales of the wrong length.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from torq_byoc.errors import QuantizationError
from torq_byoc.frontend.graph import array_of, attribute, constant_tensors, describe
from torq_byoc.frontend.shapes import Shape, element_types, known_shapes
from torq_byoc.frontend.tensor_types import type_name

_OPERATORS = ("QuantizeLinear", "DequantizeLinear")
_QUANTIZED_FROM = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT32}
)
"""Element types that the standard lets QuantizeLinear read."""


def check_quantization(model: onnx.ModelProto) -> None:
    """Check the parameters of every quantize and dequantize node of the main graph (QuantizationError)."""
    constants = constant_tensors(model.graph)
    shapes = known_shapes(model)
    types = element_types(model)
    for node in model.graph.node:
        if node.op_type in _OPERATORS and len(node.input) >= 2:
            _check_data(node, types.get(node.input[0]))
            _check_scale(node, array_of(constants, node.input[1]))
            _check_zero_point(node, constants, types)
            _check_axis(node, constants, shapes)


def _error(node: onnx.NodeProto, what: str, why: str, remedy: str = "") -> QuantizationError:
    return QuantizationError(
        what, where=describe(node), why=why, remedy=remedy or "quantize the model again; its parameters are damaged"
    )


def _check_data(node: onnx.NodeProto, kind: int | None) -> None:
    if node.op_type == "QuantizeLinear" and kind and kind not in _QUANTIZED_FROM:
        raise _error(
            node,
            "A tensor of this type cannot be quantized",
            f"{node.input[0]!r} is {type_name(kind)}; QuantizeLinear reads floating-point numbers or int32",
            "cast the tensor to float32 first",
        )


def _check_scale(node: onnx.NodeProto, scale: np.ndarray | None) -> None:
    if scale is None:
        return
    if scale.dtype.kind not in "fV" and scale.dtype.name != "bfloat16":
        raise _error(node, "A scale is not a floating-point number", f"{node.input[1]!r} holds {scale.dtype}")
    values = scale.reshape(-1).astype(np.float64)
    good = np.isfinite(values) & (values > 0)
    if not good.all():
        index = int(np.argmin(good))
        raise _error(
            node,
            "A scale is not a positive, finite number",
            f"{node.input[1]!r}[{index}] is {values[index]}",
        )


def _check_zero_point(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], types: Mapping[str, int]
) -> None:
    if len(node.input) < 3 or not node.input[2]:
        return
    zero, scale = array_of(constants, node.input[2]), array_of(constants, node.input[1])
    if zero is not None and scale is not None and zero.size != scale.size:
        raise _error(
            node,
            "Zero point and scale have different lengths",
            f"{node.input[2]!r} holds {zero.size} values, {node.input[1]!r} {scale.size}",
        )
    quantized = node.input[0] if node.op_type == "DequantizeLinear" else node.output[0]
    wanted, found = types.get(quantized), types.get(node.input[2])
    if node.op_type == "DequantizeLinear" and wanted and found and wanted != found:
        raise _error(
            node,
            "The zero point's type is not the tensor's",
            f"{node.input[2]!r} is {type_name(found)}, {quantized!r} is {type_name(wanted)}",
        )
    if wanted == onnx.TensorProto.INT32 and zero is not None and np.any(zero):
        raise _error(
            node, "A zero point of an int32 tensor is not zero", f"{node.input[2]!r} is {zero.reshape(-1)[:4]}"
        )


def _check_axis(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], shapes: Mapping[str, Shape]) -> None:
    scale_shape, shape = shapes.get(node.input[1]), shapes.get(node.input[0])
    tensor = constants.get(node.input[1])
    scale_shape = tuple(tensor.dims) if tensor is not None else scale_shape
    if scale_shape is None or shape is None:
        return
    axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    rank = len(shape)
    count = int(np.prod([n or 1 for n in scale_shape]))
    if not isinstance(axis, int) or not -max(rank, 1) <= axis < max(rank, 2):
        raise _error(node, "The quantization axis does not exist", f"axis {axis} of a tensor with {rank} dimensions")
    if block:
        _check_blocks(node, scale_shape, shape, axis)
        return
    if count == 1:
        return
    axis = 0 if rank == 1 else axis
    if len(scale_shape) != 1 or axis >= rank:
        raise _error(node, "A scale does not lie along one axis", f"scale {list(scale_shape)}, tensor {list(shape)}")
    if shape[axis] is not None and shape[axis] != count:
        raise _error(
            node,
            "A scale is not as long as the dimension it belongs to",
            f"{count} scales for dimension {axis} of shape {list(shape)}",
        )


def _check_blocks(node: onnx.NodeProto, scale_shape: Shape, shape: Shape, axis: int) -> None:
    """Scales in blocks: the tensor's shape, with the axis in so many pieces."""
    block = attribute(node, "block_size", 0)
    if not isinstance(block, int) or block < 0 or not shape:
        raise _error(node, "Scales cannot lie in such blocks", f"block size {block}, tensor {list(shape)}")
    place = axis % len(shape)
    pieces = [None if n is None else -(-n // block) if i == place else n for i, n in enumerate(shape)]
    if len(scale_shape) != len(shape) or any(
        wanted is not None and found is not None and wanted != found
        for wanted, found in zip(pieces, scale_shape, strict=True)
    ):
        raise _error(
            node,
            "Scales do not fit the blocks of their tensor",
            f"scale {list(scale_shape)} for tensor {list(shape)} in blocks of {block} along axis {axis}",
        )
