"""Channel counts of convolutions, which onnx's shape inference does not compare."""

from __future__ import annotations

import onnx

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.graph import DEFAULT_DOMAINS, attribute, describe
from torq_byoc.frontend.shapes import known_shapes

_WEIGHT_POSITION = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}


def check_layers(model: onnx.ModelProto) -> None:
    """ShapeError for a convolution whose weights do not fit its input or its groups, where shapes are known."""
    shapes = known_shapes(model)
    for node in model.graph.node:
        position = _WEIGHT_POSITION.get(node.op_type)
        if position is None or node.domain not in DEFAULT_DOMAINS or len(node.input) <= position:
            continue
        data, weights = shapes.get(node.input[0]), shapes.get(node.input[position])
        groups = attribute(node, "group", 1)
        if not data or not weights or len(data) < 3 or None in (data[1], *weights[:2]):
            continue
        transposed = node.op_type == "ConvTranspose"
        wanted = weights[0] if transposed else (weights[1] or 0) * groups
        split = weights[0]
        if len(weights) != len(data) or groups < 1 or wanted != data[1] or (split or 0) % groups:
            raise ShapeError(
                "A convolution's weights do not fit its input",
                where=describe(node),
                why=f"input {list(data)}, weights {list(weights)}, {groups} group(s)",
                remedy="check the shapes given with --shape, or export the model again",
            )
