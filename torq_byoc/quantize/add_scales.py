"""The operands of an addition take scales that are small multiples of one unit.

Before: ``y = Add(a, b)``, ``a`` and ``b`` with scales 0.0470 and 0.0312
After:  scales 127 u and 85 u, with u = 0.00037005...

The NPU adds codes with integer weights in the ratio of the scales.  Weights of 8 bits run at twice the rate of those
of 16, and are exact only when the scales stand in a ratio of small numbers.  The larger scale grows by less than
3e-5, the smaller one by at most 1/128 of the larger: nothing beside the rounding of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from torq_byoc.quantize import rules
from torq_byoc.quantize.parameters import TensorQuantization

MOST_STEPS = 127
"""Largest weight of 8 bits."""
FEWEST_STEPS = 16
"""A scale of fewer units would grow by more than a sixteenth, which other readers of the tensor would feel."""
_UNIT_BITS = 16
"""Significant bits of a unit, so that its multiples by up to 127 are float32 numbers."""


def share_add_units(
    nodes: Sequence[onnx.NodeProto],
    found: Mapping[str, TensorQuantization],
    producer: Callable[[str], onnx.NodeProto | None],
) -> dict[str, TensorQuantization]:
    """Parameters of all tensors, those of the operands of additions in ratios of small integers.

    Args:
        nodes: the nodes with an integer form, in graph order.
        found: parameters of every quantized tensor.
        producer: the node with an integer form that makes a tensor, or None.
    """

    def is_free(name: str) -> bool:
        maker = producer(name)
        kept = maker is not None and (maker.op_type in rules.SAME_SCALE or maker.op_type in rules.BOUNDED)
        return name in found and not kept

    shared = dict(found)
    for node in nodes:
        names = list(node.input)
        if node.op_type not in ("Add", "Sub") or len(set(names)) < 2 or not all(map(is_free, names)):
            continue
        scales = [float(shared[name].scale) for name in names]
        unit = _unit(max(scales) / MOST_STEPS)
        steps = [math.ceil(scale / unit) for scale in scales]
        if min(steps) >= FEWEST_STEPS:
            shared.update({name: _with_scale(shared[name], n * unit) for name, n in zip(names, steps, strict=True)})
    return shared


def _unit(least: float) -> float:
    """The smallest number of few significant bits that is at least ``least``."""
    mantissa, exponent = math.frexp(least)
    return math.ldexp(math.ceil(math.ldexp(mantissa, _UNIT_BITS)), exponent - _UNIT_BITS)


def _with_scale(old: TensorQuantization, scale: float) -> TensorQuantization:
    """The same range with a coarser scale: the smallest value keeps the code it has."""
    if old.dtype != "int8":
        return TensorQuantization(np.float32(scale), old.zero_point, old.dtype)
    zero_point = round((old.zero_point + 128) * float(old.scale) / scale) - 128
    return TensorQuantization(np.float32(scale), zero_point, old.dtype)
