"""Which part of a model's output is what: the operands of the concatenations that it is made of.

A detector concatenates boxes in pixels with class scores below one.  Over the whole output the boxes drown whatever
happens to the scores, so outputs are judged part by part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from torq_byoc.quantize.evaluation.evaluator import Evaluator

MOVEMENT = frozenset(
    {"Cast", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Gather"}
)
"""Operators that place elements of their first input elsewhere and change no value."""


@dataclass(frozen=True, eq=False)
class OutputPart:
    """Elements of one output that come from one tensor.

    Attributes:
        output: the model output.
        name: the tensor that the elements come from; the output's own name when it is of one piece.
        mask: bool of the output's shape; None when the output is of one piece.
    """

    output: str
    name: str
    mask: np.ndarray | None

    def of(self, values: np.ndarray) -> np.ndarray:
        """The part's elements of an output's values."""
        return values if self.mask is None else values[self.mask.reshape(values.shape)]


def output_parts(model: onnx.ModelProto) -> tuple[OutputPart, ...]:
    """Parts of every output, in the order of outputs and of operands.

    Args:
        model: prepared: static shapes, constants folded.
    """
    return tuple(part for value in model.graph.output for part in _parts_of(model, value.name))


def _parts_of(model: onnx.ModelProto, output: str) -> Iterator[OutputPart]:
    pieces, movers = _trace(model, output)
    if len(pieces) < 2:
        yield OutputPart(output, output, None)
        return
    owners = _owners(model, output, pieces, movers)
    for index, name in enumerate(pieces):
        mask = owners == index
        if mask.any():
            yield OutputPart(output, name, mask)


def _trace(model: onnx.ModelProto, output: str) -> tuple[list[str], list[onnx.NodeProto]]:
    """The tensors that an output is put together from, and the nodes that do so, in graph order."""
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    pieces: dict[str, None] = {}
    movers: dict[int, None] = {}
    waiting = [output]
    while waiting:
        name = waiting.pop()
        node = producers.get(name)
        if node is None or not (node.op_type == "Concat" or _only_moves(node, constants)):
            pieces[name] = None
            continue
        movers[id(node)] = None
        waiting += reversed(node.input) if node.op_type == "Concat" else [node.input[0]]
    return list(pieces), [node for node in model.graph.node if id(node) in movers]


def _only_moves(node: onnx.NodeProto, constants: set[str]) -> bool:
    return node.op_type in MOVEMENT and all(name in constants for name in node.input[1:] if name)


def _owners(model: onnx.ModelProto, output: str, pieces: list[str], movers: list[onnx.NodeProto]) -> np.ndarray:
    """For every element of the output the index of its piece: numbers in place of the pieces, moved as these are."""
    shapes = _shapes(model)
    values = {name: np.full(shapes[name], index, np.float32) for index, name in enumerate(pieces)}
    used = {name for node in movers for name in node.input}
    graph = helper.make_graph(
        [_without_cast(node) for node in movers],
        "owners",
        [],
        [helper.make_empty_tensor_value_info(output)],
        [
            *(numpy_helper.from_array(value, name) for name, value in values.items()),
            *(tensor for tensor in model.graph.initializer if tensor.name in used and tensor.name not in values),
        ],
    )
    moved = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    return np.rint(Evaluator(moved).outputs({})[output]).astype(np.int64)


def _without_cast(node: onnx.NodeProto) -> onnx.NodeProto:
    return helper.make_node("Identity", node.input, node.output) if node.op_type == "Cast" else node


def _shapes(model: onnx.ModelProto) -> Mapping[str, tuple[int, ...]]:
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    found = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    return {**found, **{tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}}
