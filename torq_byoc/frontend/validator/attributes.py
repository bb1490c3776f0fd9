"""Numbers among the attributes: slopes, epsilons and factors are finite."""

from __future__ import annotations

import math

import onnx

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import all_nodes, describe

_DATA = frozenset({"value", "value_float", "value_floats", "min", "max"})
"""Attributes that stand for tensors or bounds, which may be infinite: of Constant, Pad and Clip."""


def check_attributes(model: onnx.ModelProto) -> None:
    """Refuse a parameter of an operator that is NaN or infinite (ModelFileError)."""
    for node in all_nodes(model.graph):
        for attribute in node.attribute:
            numbers = attribute.floats if attribute.type == onnx.AttributeProto.FLOATS else [attribute.f]
            bad = [number for number in numbers if not math.isfinite(number)]
            if bad and attribute.name not in _DATA:
                raise ModelFileError(
                    "A parameter of an operator is no finite number",
                    where=describe(node),
                    why=f"{attribute.name} is {bad[0]}",
                    remedy="correct it where the model is exported",
                )
