"""Where a quantized model's error comes from: tensors that are rounded, and weights that are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from torq_byoc.quantize import rules
from torq_byoc.quantize.concat_scales import share_concat_scales
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph
from torq_byoc.quantize.qdq.quantizable import Quantizable


@dataclass(frozen=True)
class Source:
    """One cause of error.

    Attributes:
        tensors: activations that share one quantization, in graph order; empty for weights.
        node: the operator whose weights are rounded; empty for activations.
    """

    tensors: tuple[str, ...] = ()
    node: str = ""


def sources_of(form: Quantizable) -> list[Source]:
    """All causes of error, in graph order."""
    graph, model = form.graph(), form.model
    constants = {tensor.name for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    weighted = [
        node.name for node in graph.integer_nodes() if node.op_type in rules.WEIGHTED and node.input[1] in constants
    ]
    found = [*(Source(tensors=names) for names in _shared(graph)), *(Source(node=name) for name in weighted)]
    order = {node.name: position for position, node in enumerate(model.graph.node)}

    def position(source: Source) -> tuple[int, bool]:
        maker = source.node or next((makers[name].name for name in source.tensors if name in makers), "")
        return order.get(maker, -1), not source.node

    return sorted(found, key=position)


def _shared(graph: IntegerGraph) -> list[tuple[str, ...]]:
    """Tensors with quantizations of their own, those that share one together: each is marked, and the marks shared."""
    own = [name for name in graph.to_observe() if graph.leader(name) == name]
    marks = {name: TensorQuantization(np.float32(number), 0, "int16") for number, name in enumerate(own)}
    marks = share_concat_scales(graph.integer_nodes(), marks, graph.integer_producer, graph.sole_integer_reader)
    groups: dict[float, list[str]] = {}
    for name in own:
        groups.setdefault(float(marks[name].scale), []).append(name)
    return [tuple(names) for names in groups.values()]


def rounded_weights(quantized: onnx.ModelProto, nodes: Sequence[str]) -> Mapping[str, tuple[int, np.ndarray]]:
    """Position and real values of the stored weights of operators in a QDQ model, by name of the operator."""
    constants = {tensor.name: tensor for tensor in quantized.graph.initializer}
    makers = {name: node for node in quantized.graph.node for name in node.output}
    found = {}
    for node in quantized.graph.node:
        maker = makers.get(node.input[1]) if node.name in nodes and len(node.input) > 1 else None
        if maker is None or maker.op_type != "DequantizeLinear" or maker.input[0] not in constants:
            continue
        codes, scale = (numpy_helper.to_array(constants[name]) for name in maker.input[:2])
        axis = next((attribute.i for attribute in maker.attribute if attribute.name == "axis"), 1)
        shape = [-1 if i == axis % codes.ndim else 1 for i in range(codes.ndim)] if scale.ndim else []
        found[node.name] = (1, (codes.astype(np.float64) * scale.reshape(shape)).astype(np.float32))
    return found
