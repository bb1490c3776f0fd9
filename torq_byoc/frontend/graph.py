"""Reading an ONNX graph: names, tensors, sub-graphs, producers, readers and constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

DEFAULT_DOMAINS = ("", "ai.onnx")


def default_opset(model: onnx.ModelProto) -> int:
    """Version of the default operator set; 1 when the model does not name it."""
    return next((o.version for o in model.opset_import if o.domain in DEFAULT_DOMAINS), 1)


def operator_name(node: onnx.NodeProto) -> str:
    """The operator with its domain, unless that is the default one."""
    return node.op_type if node.domain in DEFAULT_DOMAINS else f"{node.domain}.{node.op_type}"


def describe(node: onnx.NodeProto) -> str:
    """A node as error messages name it: its name, or its first output when it has none, and its operator."""
    name = node.name or next((o for o in node.output if o), "")
    return f"node {name!r} ({operator_name(node)})"


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node's attributes hold (branches and loop bodies)."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH or attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of all its sub-graphs, outer before inner."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all its sub-graphs."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every stored tensor: initializers, sparse ones, and those in node attributes; functions included."""
    for graph in all_graphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        yield from _attribute_tensors(graph.node)
    for function in model.functions:
        yield from _attribute_tensors(function.node)


def _attribute_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute as a Python value (bytes for strings), or the default."""
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def readers(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    """Tensor name -> nodes of this graph that read it, directly or inside a sub-graph."""
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        names = list(node.input)
        names += [name for inner in subgraphs(node) for name in captured_names(inner)]
        for name in dict.fromkeys(names):
            users.setdefault(name, []).append(node)
    return users


def captured_names(graph: onnx.GraphProto) -> list[str]:
    """Names that a sub-graph reads (and yields) without defining them."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    wanted = [name for node in graph.node for name in node.input] + [v.name for v in graph.output]
    wanted += [name for node in graph.node for inner in subgraphs(node) for name in captured_names(inner)]
    return [name for name in dict.fromkeys(wanted) if name and name not in own]


def producers(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Tensor name -> the node that computes it."""
    return {name: node for node in graph.node for name in node.output if name}


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Tensor name -> its stored value: initializers that no graph input overrides, and Constant nodes."""
    inputs = {v.name for v in graph.input}
    found = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in inputs}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS and len(node.attribute) == 1:
            tensor = constant_value(node)
            if tensor is not None:
                found[node.output[0]] = tensor
    return found


_CONSTANT_TYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def constant_value(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant node in any of its spellings; None for strings and sparse values."""
    held = node.attribute[0]
    if held.name == "value":
        return held.t
    if held.name not in _CONSTANT_TYPES:
        return None
    array = np.asarray(onnx.helper.get_attribute_value(held), _CONSTANT_TYPES[held.name])
    return numpy_helper.from_array(array, node.output[0])


def array_of(constants: Mapping[str, onnx.TensorProto], name: str) -> np.ndarray | None:
    """The value of a stored tensor, None when the name is not one."""
    tensor = constants.get(name) if name else None
    return None if tensor is None else numpy_helper.to_array(tensor)
