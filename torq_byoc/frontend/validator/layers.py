"""Channel counts, biases and windows of convolutions and pools, which onnx's shape inference does not compare."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.graph import DEFAULT_DOMAINS, attribute, describe
from torq_byoc.frontend.limits import MAX_DIMENSION
from torq_byoc.frontend.shapes import known_shapes

_WEIGHT_POSITION = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
_BIAS_POSITION = {"Conv": 2, "ConvTranspose": 2, "QLinearConv": 8}
_SPATIAL = frozenset(
    {*_WEIGHT_POSITION, "MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"}
)
_WINDOW = ("kernel_shape", "strides", "dilations", "pads")
_REMEDY = "check the shapes given with --shape, or export the model again"


def check_layers(model: onnx.ModelProto) -> None:
    """Check windows everywhere, and weights and biases of convolutions where shapes are known.

    Raises:
        ShapeError: data without a spatial dimension, weights that do not fit input and groups, a bias of
            another length than the result's channels, or a window, stride or pad beyond any tensor.
    """
    shapes = known_shapes(model)
    for node in model.graph.node:
        if node.domain not in DEFAULT_DOMAINS:
            continue
        _check_window(node)
        _check_rank(node, shapes.get(node.input[0]) if node.input else None)
        position = _WEIGHT_POSITION.get(node.op_type)
        if position is None or len(node.input) <= position:
            continue
        data, weights = shapes.get(node.input[0]), shapes.get(node.input[position])
        if data and weights and len(data) >= 3 and None not in (data[1], *weights[:2]):
            _check_weights(node, data, weights)
            _check_bias(node, weights, shapes.get(node.input[bias]) if (bias := _bias(node)) else None)


def _bias(node: onnx.NodeProto) -> int | None:
    """Position of the node's bias, when it has one."""
    position = _BIAS_POSITION.get(node.op_type)
    return position if position is not None and len(node.input) > position and node.input[position] else None


def _check_window(node: onnx.NodeProto) -> None:
    for name in _WINDOW:
        values = attribute(node, name, [])
        if isinstance(values, list) and any(isinstance(v, int) and abs(v) > MAX_DIMENSION for v in values):
            raise ShapeError(
                "A window attribute is beyond any tensor",
                where=describe(node),
                why=f"{name} is {values}, at most {MAX_DIMENSION} is possible",
                remedy=_REMEDY,
            )


def _check_rank(node: onnx.NodeProto, data: Sequence[int | None] | None) -> None:
    if node.op_type in _SPATIAL and data is not None and len(data) < 3:
        raise ShapeError(
            f"{node.op_type} works on batch, channels and at least one more dimension",
            where=describe(node),
            why=f"its input is {list(data)}",
            remedy=_REMEDY,
        )


def _check_weights(node: onnx.NodeProto, data: Sequence[int | None], weights: Sequence[int | None]) -> None:
    groups = attribute(node, "group", 1)
    if len(weights) == len(data):
        wanted = weights[0] if node.op_type == "ConvTranspose" else (weights[1] or 0) * groups
        fits = groups >= 1 and wanted == data[1] and not (weights[0] or 0) % groups
    else:
        fits = False
    if not fits:
        raise ShapeError(
            "A convolution's weights do not fit its input",
            where=describe(node),
            why=f"input {list(data)}, weights {list(weights)}, {groups} group(s)",
            remedy=_REMEDY,
        )
    kernel = attribute(node, "kernel_shape", [])
    if kernel and None not in weights[2:] and list(kernel) != list(weights[2:]):
        raise ShapeError(
            "A convolution's kernel_shape is not that of its weights",
            where=describe(node),
            why=f"kernel_shape {list(kernel)}, weights {list(weights)}",
            remedy=_REMEDY,
        )


def _check_bias(node: onnx.NodeProto, weights: Sequence[int | None], bias: Sequence[int | None] | None) -> None:
    transposed = node.op_type == "ConvTranspose"
    channels = (weights[1] or 0) * attribute(node, "group", 1) if transposed else weights[0]
    if bias is not None and None not in bias and list(bias) != [channels]:
        raise ShapeError(
            "A convolution's bias does not fit its channels",
            where=describe(node),
            why=f"bias {list(bias)}, {channels} channels",
            remedy=_REMEDY,
        )
