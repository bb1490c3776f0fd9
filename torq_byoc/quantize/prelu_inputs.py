"""A tensor that only a PRelu reads takes the zero point 0 where that costs little.

Before: ``y = PRelu(x)``, x in -5.1 .. 4.9 with zero point 2
After:  zero point 0, the scale grown by 2 %

Two straight pieces that meet at code 0 are the larger of two multiples of a code, which the NPU computes in one pass.
Pieces that meet elsewhere take two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from torq_byoc.quantize import rules
from torq_byoc.quantize.parameters import TensorQuantization

MOST_GROWTH = 1 + 1 / 16
"""Scale that is accepted, over that of the narrowest range."""
_TWO_SLOPES = frozenset({"PRelu", "LeakyRelu"})

Links = Callable[[str], onnx.NodeProto | None]


def centre_prelu_inputs(
    nodes: Sequence[onnx.NodeProto],
    found: Mapping[str, TensorQuantization],
    producer: Links,
    sole_reader: Links,
) -> dict[str, TensorQuantization]:
    """Parameters of all tensors, those of nearly symmetric inputs of PRelu with zero point 0.

    Args:
        nodes: the nodes with an integer form, in graph order.
        found: parameters of every quantized tensor.
        producer: the node with an integer form that makes a tensor, or None.
        sole_reader: the only node that reads a tensor, and has an integer form; None for graph outputs.
    """
    centred = dict(found)
    for node in nodes:
        name = node.input[0]
        maker = producer(name)
        free = maker is not None and maker.op_type not in rules.SAME_SCALE and maker.op_type not in rules.BOUNDED
        if node.op_type in _TWO_SLOPES and free and name in centred and sole_reader(name) is node:
            centred[name] = _centred(centred[name])
    return centred


def _centred(old: TensorQuantization) -> TensorQuantization:
    """The same range with zero point 0, unless the scale would grow too much."""
    if old.dtype != "int8":
        return old
    growth = max((128 + old.zero_point) / 128, (127 - old.zero_point) / 127)
    return TensorQuantization(np.float32(old.scale * growth), 0, "int8") if growth <= MOST_GROWTH else old
