"""Operators that make something out of a tensor without elements; neither side has code for them."""

from __future__ import annotations

import onnx

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.graph import describe
from torq_byoc.frontend.shapes import known_shapes


def check_emptiness(model: onnx.ModelProto) -> None:
    """ShapeError for a node of a prepared model whose data, its first input, has no elements.

    A result without elements is stored when preparing, and so is what is computed from stored tensors alone.
    """
    shapes = known_shapes(model)
    for node in model.graph.node:
        shape = shapes.get(node.input[0]) if node.input and node.op_type != "Identity" else None
        if shape is not None and 0 in shape:
            raise ShapeError(
                "A node reads a tensor without elements",
                where=describe(node),
                why=f"{node.input[0]!r} has shape {list(shape)}",
                remedy="check the shapes given with --shape, or export the model without this node",
            )
