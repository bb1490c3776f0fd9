"""Shapes of an ONNX model: inference that leaves the weights out, and what it found."""

from __future__ import annotations

import itertools
import math

import onnx
from onnx import shape_inference

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.graph import all_graphs

Shape = tuple[int | None, ...]

_SMALL_ELEMENTS = 1024
"""Weights up to this size keep their values during inference: shapes, axes, pads and sizes are among them."""


def infer_shapes(model: onnx.ModelProto, *, strict: bool = False) -> None:
    """Fill ``value_info`` of the main graph, in place; dimensions that stay unknown are left unknown.

    Shapes that contradict each other raise ShapeError when ``strict``, otherwise inference stops there.
    """
    light = _without_weights(model)
    try:
        if strict:
            # Apart, because propagating the values of shapes reports errors of its own in nested branches.
            shape_inference.infer_shapes(light, strict_mode=True, data_prop=False)
        inferred = shape_inference.infer_shapes(light, strict_mode=False, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise _contradiction(str(error)) from error
    kept = {v.name for v in model.graph.input} | {t.name for t in model.graph.initializer}
    given = {v.name: v for v in inferred.graph.input}  # an output that is an input has no node to infer it from
    outputs = {v.name: given.get(v.name, v) for v in inferred.graph.output}
    del model.graph.value_info[:]
    model.graph.value_info.extend(v for v in inferred.graph.value_info if v.name not in kept and v.name not in outputs)
    for value in model.graph.output:
        value.type.CopyFrom(outputs[value.name].type)


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large weights are inputs: serialising them for inference would take long, and memory."""
    light = onnx.ModelProto()
    _copy_light(model, light) if _has_large_weights(model) else light.CopyFrom(model)
    return light


def _has_large_weights(model: onnx.ModelProto) -> bool:
    """Whether weights take a MiB; they are measured by serialising them, so only as far as that tells."""
    sizes = (tensor.ByteSize() for tensor in model.graph.initializer)
    return any(total >= 2**20 for total in itertools.accumulate(sizes))


def _copy_light(model: onnx.ModelProto, light: onnx.ModelProto) -> None:
    light.ir_version, light.graph.name = model.ir_version, model.graph.name
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.node.extend(model.graph.node)
    light.graph.input.extend(model.graph.input)
    light.graph.output.extend(model.graph.output)
    light.graph.value_info.extend(model.graph.value_info)
    inputs = {v.name for v in model.graph.input}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL_ELEMENTS:
            light.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )


def known_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """Tensor name -> its shape as inferred so far, None for an unknown dimension; unknown ranks are absent."""
    shapes: dict[str, Shape] = {}
    for graph in all_graphs(model.graph):
        for value in [*graph.value_info, *graph.input, *graph.output]:
            shape = declared_shape(value)
            if shape is not None:
                shapes[value.name] = shape
        shapes.update({t.name: tuple(t.dims) for t in graph.initializer})
    return shapes


def declared_shape(value: onnx.ValueInfoProto) -> Shape | None:
    """The shape of a declared tensor; -1, a name or nothing is an unknown dimension, None an unknown rank."""
    tensor_type = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor_type.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor_type.shape.dim)


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor name -> ONNX element type, where it is declared or inferred."""
    types: dict[str, int] = {}
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type:
            types[value.name] = value.type.tensor_type.elem_type
    types.update({t.name: t.data_type for t in model.graph.initializer})
    return types


def _contradiction(message: str) -> ShapeError:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return ShapeError(
        "The shapes or types of the model contradict each other",
        where="graph",
        why=" ".join(lines)[:400],
        remedy="check the shapes given with --shape; if there are none, export the model again",
    )
