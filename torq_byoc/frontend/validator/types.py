"""Element types that a compiled model can carry, and inputs and outputs that are tensors."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.frontend.graph import describe
from torq_byoc.frontend.shapes import element_types
from torq_byoc.frontend.tensor_types import type_name

COMPUTED = frozenset(
    {
        *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.BOOL),
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    }
)
"""Element types that either side can compute with."""

_REMEDY = "export the model with float, integer (8 bits or more) or boolean tensors"


def check_interface(model: onnx.ModelProto) -> None:
    """UnsupportedOpError for inputs and outputs that are sequences, optional values, maps or sparse tensors."""
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            form = value.type.WhichOneof("value")
            if form not in (None, "tensor_type"):
                raise UnsupportedOpError(
                    f"an {kind} of the model is not a tensor",
                    where=f"{kind} {value.name!r}",
                    why=f"it is a {str(form).removesuffix('_type').replace('_', ' ')}",
                    remedy="export the model with tensors as its inputs and outputs",
                )


def check_element_types(model: onnx.ModelProto) -> None:
    """UnsupportedOpError for tensors that a node or an output needs and that neither side can compute with."""
    types = element_types(model)
    found: dict[str, list[str]] = {}
    for value in [*model.graph.input, *model.graph.output]:
        _collect(found, types.get(value.name), f"tensor {value.name!r}")
    for node in model.graph.node:
        for name in [*node.input, *node.output]:
            _collect(found, types.get(name), describe(node))
    if found:
        raise UnsupportedOpError(
            f"tensors of type {', '.join(sorted(found))} cannot be computed, neither on the NPU nor on the CPU",
            where="; ".join(f"{kind}: {', '.join(places[:3])}" for kind, places in sorted(found.items())),
            why="only 8 to 64 bit integers, bool, bfloat16, float16, float32 and float64 can be",
            remedy=_REMEDY,
            details={"types": {kind: places for kind, places in sorted(found.items())}},
        )


def _collect(found: dict[str, list[str]], kind: int | None, place: str) -> None:
    if kind and kind not in COMPUTED:
        places = found.setdefault(type_name(kind), [])
        if place not in places:
            places.append(place)
