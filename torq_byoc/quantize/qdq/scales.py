"""Scales and zero points of activations: from their ranges, then brought into agreement with their neighbours'."""

from __future__ import annotations

from collections.abc import Mapping

from torq_byoc.quantize import parameters, rules
from torq_byoc.quantize.add_scales import share_add_units
from torq_byoc.quantize.bounded_results import bounded_result
from torq_byoc.quantize.concat_scales import share_concat_scales
from torq_byoc.quantize.observers import Range
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.prelu_inputs import centre_prelu_inputs
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph


def quantization_of_tensor(graph: IntegerGraph, name: str, observed: Range) -> TensorQuantization:
    """Parameters of a tensor for a range, on its own."""
    maker, dtype = graph.integer_producer(name), graph.plan.dtype_of(name)
    if maker is not None and maker.op_type in rules.BOUNDED and dtype == "int8":
        return bounded_result(maker.op_type, observed)
    return parameters.activation(observed, dtype)


def quantization_of_tensors(graph: IntegerGraph, ranges: Mapping[str, Range]) -> dict[str, TensorQuantization]:
    """Parameters of every tensor, in agreement with its neighbours'.

    Args:
        graph: the graph.
        ranges: of every tensor of ``graph.to_observe()``.
    """
    found = {name: quantization_of_tensor(graph, name, each) for name, each in ranges.items()}
    integer = graph.integer_nodes()
    found = share_add_units(integer, found, graph.integer_producer)
    found = share_concat_scales(integer, found, graph.integer_producer, graph.sole_integer_reader)
    found = centre_prelu_inputs(integer, found, graph.integer_producer, graph.sole_integer_reader)
    for node in integer:
        source = node.input[0]
        if node.op_type in rules.SAME_SCALE and source in found:
            found.update({name: found[source] for name in node.output if name in found})
    return found
