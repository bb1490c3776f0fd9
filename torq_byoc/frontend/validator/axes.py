"""Axis attributes and inputs that name a dimension the tensor does not have."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.graph import DEFAULT_DOMAINS, array_of, attribute, constant_tensors, default_opset, describe
from torq_byoc.frontend.shapes import known_shapes

_QUANTIZE = ("QuantizeLinear", "DequantizeLinear")
"""Their axis is only used together with a vector of scales; the quantization check knows."""

_AXES_INPUT = {"Squeeze": 1, "Unsqueeze": 1, "Slice": 3, "Pad": 3}


def check_axes(model: onnx.ModelProto) -> None:
    """ShapeError for an axis outside the rank of the tensor, where that rank is known."""
    constants = constant_tensors(model.graph)
    shapes = known_shapes(model)
    opset = default_opset(model)
    for node in model.graph.node:
        if node.domain not in DEFAULT_DOMAINS or not node.input or node.op_type in _QUANTIZE:
            continue
        if node.input[0] not in shapes:
            continue
        axes = _axes(node, constants)
        rank = len(shapes[node.input[0]]) + (len(axes) if node.op_type == "Unsqueeze" else 0)
        rank += 1 if node.op_type == "OneHot" else 0
        past = 1 if node.op_type == "Flatten" or (opset < 13 and node.op_type.endswith("max")) else 0
        for axis in axes:
            if not -rank <= axis < rank + past:
                raise ShapeError(
                    "An axis does not exist",
                    where=describe(node),
                    why=f"axis {axis} of a tensor with {rank} dimensions",
                    remedy="check the shapes given with --shape, or export the model again",
                )


def _axes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> list[int]:
    single = attribute(node, "axis")
    if isinstance(single, int):
        return [single]
    several = attribute(node, "axes")
    if isinstance(several, list) and all(isinstance(a, int) for a in several):
        return several
    index = 1 if node.op_type.startswith("Reduce") else _AXES_INPUT.get(node.op_type)
    array = None if index is None or index >= len(node.input) else array_of(constants, node.input[index])
    return [] if array is None or array.dtype.kind != "i" else [int(a) for a in array.reshape(-1)]
