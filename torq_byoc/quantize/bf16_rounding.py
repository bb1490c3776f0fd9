"""A QDQ model whose float operators round as the NPU rounds them, for judging it.

Before: ``y = Conv(DequantizeLinear(x), w)``
After:  ``y = bf16(Conv(bf16(DequantizeLinear(x)), bf16(w)))``, each rounding a cast there and back
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
from onnx import TensorProto, helper


def with_bf16_rounding(model: onnx.ModelProto, nodes: Collection[str]) -> onnx.ModelProto:
    """The model with the operands and results of float operators rounded to bf16.

    Args:
        model: its shapes inferred.
        nodes: names of the operators that run in bf16.
    """
    if not nodes:
        return model
    graph = model.graph
    values = (*graph.value_info, *graph.input, *graph.output)
    floats = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    floats |= {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT}
    rewritten: list[onnx.NodeProto] = []
    rounded: dict[str, str] = {}

    def round_to_bf16(name: str, result: str) -> None:
        narrow = f"{result}_bf16"
        rewritten.append(helper.make_node("Cast", [name], [narrow], to=TensorProto.BFLOAT16))
        rewritten.append(helper.make_node("Cast", [narrow], [result], to=TensorProto.FLOAT))

    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        rewritten_inputs = []
        for name in node.input:
            if node.name in nodes and name in floats and name not in rounded:
                rounded[name] = f"{name}_as_bf16"
                round_to_bf16(name, rounded[name])
            rewritten_inputs.append(rounded[name] if node.name in nodes and name in floats else name)
        copy.input[:] = rewritten_inputs
        rewritten.append(copy)
        if node.name in nodes:
            for position, name in enumerate(node.output):
                copy.output[position] = f"{name}_exact"
                round_to_bf16(copy.output[position], name)
                rounded[name] = name
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.graph.ClearField("node")
    result.graph.node.extend(rewritten)
    return result
