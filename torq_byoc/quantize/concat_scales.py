"""A tensor that only a concatenation reads takes the concatenation's scale; a clamp after it lends its own.

Before: ``y = Relu(Concat(a, b))``, each of ``a``, ``b``, the concatenation and ``y`` with a scale of its own
After:  one scale for all of them, that of ``y``

Values are then rounded once, to the codes that are read, and no pass over the data brings them from one scale to
another.  What the clamp cuts off, the narrower range of its result cuts off already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from torq_byoc.quantize import rules
from torq_byoc.quantize.parameters import TensorQuantization

Links = Callable[[str], onnx.NodeProto | None]


def share_concat_scales(
    nodes: Sequence[onnx.NodeProto],
    found: Mapping[str, TensorQuantization],
    producer: Links,
    sole_reader: Links,
) -> dict[str, TensorQuantization]:
    """Parameters of all tensors, those around concatenations shared.

    Args:
        nodes: the nodes with an integer form, in graph order.
        found: parameters of every quantized tensor.
        producer: the node with an integer form that makes a tensor, or None.
        sole_reader: the only node that reads a tensor, and has an integer form; None for graph outputs.
    """
    shared = dict(found)
    for node in reversed(nodes):
        if node.op_type != "Concat" or node.output[0] not in shared:
            continue
        clamp = sole_reader(node.output[0])
        clamped = clamp is not None and clamp.op_type in rules.CLAMPS and clamp.output[0] in shared
        if clamp is not None and clamped and _alike(shared, clamp.output[0], node.output[0]):
            shared[node.output[0]] = shared[clamp.output[0]]
        for name in node.input:
            maker = producer(name)
            free = maker is not None and maker.op_type not in rules.SAME_SCALE and maker.op_type not in rules.BOUNDED
            if free and name in shared and sole_reader(name) is node and _alike(shared, name, node.output[0]):
                shared[name] = shared[node.output[0]]
    return shared


def _alike(found: Mapping[str, TensorQuantization], name: str, other: str) -> bool:
    """Whether the codes of two tensors have one type; codes of 16 bits are there because 8 do not suffice."""
    return found[name].dtype == found[other].dtype
