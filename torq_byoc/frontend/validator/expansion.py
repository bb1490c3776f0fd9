"""Operators that make much out of little: a few bytes of file may ask for terabytes of memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.graph import all_graphs, array_of, constant_tensors, describe
from torq_byoc.frontend.limits import MAX_TENSOR_BYTES
from torq_byoc.frontend.shapes import known_shapes

Constants = Mapping[str, onnx.TensorProto]

_LIMIT = MAX_TENSOR_BYTES // 4
"""Elements: a float tensor of the largest size."""


def check_expansions(model: onnx.ModelProto) -> None:
    """ShapeError when a node with constant parameters yields more than MAX_TENSOR_BYTES of floats."""
    shapes = known_shapes(model)
    constants: dict[str, onnx.TensorProto] = {}
    for graph in all_graphs(model.graph):
        constants.update(constant_tensors(graph))
        for node in graph.node:
            size = _SIZES.get(node.op_type)
            elements = None if size is None else size(node, constants, shapes)
            if elements is not None and elements > _LIMIT:
                raise _too_large(node, elements)


def check_sizes(model: onnx.ModelProto) -> None:
    """ShapeError when any tensor with a known shape has more than MAX_TENSOR_BYTES of floats."""
    shapes = known_shapes(model)
    for node in model.graph.node:
        for name in node.output:
            elements = math.prod(n or 1 for n in shapes.get(name, ()))
            if elements > _LIMIT:
                raise _too_large(node, elements)


def _too_large(node: onnx.NodeProto, elements: int) -> ShapeError:
    return ShapeError(
        "A node computes a tensor that is too large",
        where=describe(node),
        why=f"at least {elements} elements, at most {_LIMIT}",
        remedy="reduce the input shapes, or check that the file is not damaged",
    )


def _integers(array: np.ndarray | None) -> list[int] | None:
    return None if array is None or array.dtype.kind not in "iu" else [int(v) for v in array.reshape(-1)]


def _shape_input(index: int) -> Callable[..., int | None]:
    def size(node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, tuple]) -> int | None:
        name = node.input[index] if index < len(node.input) else ""
        dims = _integers(array_of(constants, name))
        return None if dims is None else math.prod(max(1, d) for d in dims)

    return size


def _tile(node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, tuple]) -> int | None:
    repeats = _shape_input(1)(node, constants, shapes)
    return None if repeats is None else repeats * math.prod(n or 1 for n in shapes.get(node.input[0], ()))


def _range(node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, tuple]) -> int | None:
    values = [array_of(constants, name) for name in node.input]
    if len(values) != 3 or any(v is None or v.size != 1 for v in values):
        return None
    start, limit, delta = (float(v.reshape(-1)[0]) for v in values if v is not None)
    if not all(map(math.isfinite, (start, limit, delta))) or delta == 0:
        raise ShapeError(
            "Range has no finite length",
            where=describe(node),
            why=f"start {start}, limit {limit}, step {delta}",
            remedy="export the model again",
        )
    length = (limit - start) / delta
    return math.ceil(length) if math.isfinite(length) else _LIMIT + 1


def _pad(node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, tuple]) -> int | None:
    pads = _integers(array_of(constants, node.input[1] if len(node.input) > 1 else ""))
    if pads is None:
        pads = next((list(a.ints) for a in node.attribute if a.name == "pads"), None)
    return None if pads is None else max([abs(p) for p in pads], default=0)


def _factors(index: int) -> Callable[..., int | None]:
    def size(node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, tuple]) -> int | None:
        factors = array_of(constants, node.input[index] if index < len(node.input) else "")
        if factors is None or factors.size == 0 or factors.dtype.kind != "f":
            return None
        product = float(np.prod(np.maximum(factors.astype(np.float64), 1.0)))
        base = math.prod(n or 1 for n in shapes.get(node.input[0], ()))
        return math.ceil(product * base) if math.isfinite(product) else _LIMIT + 1

    return size


def _resize(node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, tuple]) -> int | None:
    found = [
        _shape_input(3)(node, constants, shapes),
        _factors(2 if len(node.input) > 2 else 1)(node, constants, shapes),
    ]
    return max((n for n in found if n is not None), default=None)


_SIZES: dict[str, Callable[..., int | None]] = {
    "ConstantOfShape": _shape_input(0),
    "Expand": _shape_input(1),
    "Tile": _tile,
    "Range": _range,
    "Pad": _pad,
    "Upsample": _factors(1),
    "Resize": _resize,
    "RandomNormal": lambda node, *_: math.prod(next((a.ints for a in node.attribute if a.name == "shape"), [])),
    "RandomUniform": lambda node, *_: math.prod(next((a.ints for a in node.attribute if a.name == "shape"), [])),
    "EyeLike": lambda node, constants, shapes: math.prod(n or 1 for n in shapes.get(node.input[0], ())),
}
