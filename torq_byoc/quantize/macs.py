"""How much work the layers of a model are."""

from __future__ import annotations

import math

import onnx

from torq_byoc.quantize import rules


def layer_macs(model: onnx.ModelProto) -> dict[str, int]:
    """Multiply-accumulates of every layer with stored weights, by the name of its node.

    Args:
        model: prepared: static shapes, no transposed operands.
    """
    graph = model.graph
    values = (*graph.value_info, *graph.input, *graph.output)
    elements = {v.name: math.prod(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return {
        node.name: _of(node, weights[node.input[1]], elements)
        for node in graph.node
        if node.op_type in rules.WEIGHTED and node.input[1] in weights
    }


def _of(node: onnx.NodeProto, weights: list[int], elements: dict[str, int]) -> int:
    """A product for every weight that meets an element of the result, or of the input where these are spread out."""
    if node.op_type == "ConvTranspose":
        return elements.get(node.input[0], 0) * math.prod(weights[1:])
    return elements.get(node.output[0], 0) * (math.prod(weights[1:]) if node.op_type == "Conv" else weights[-2:][0])
