"""The graph as a graph: every name defined once, before it is read, and no cycles."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import describe, subgraphs

_REMEDY = "export the model again; the file does not describe a computation"


def check_structure(model: onnx.ModelProto) -> None:
    """Check names and order of the main graph and all sub-graphs (ModelFileError)."""
    if not model.graph.output:
        raise ModelFileError("The model has no outputs", where="graph", remedy=_REMEDY)
    _check_graph(model.graph, frozenset())


def _check_graph(graph: onnx.GraphProto, outer: frozenset[str]) -> None:
    defined = set(outer)
    weights = _unique((t.name for t in graph.initializer), "initializer")
    inputs = _unique((v.name for v in graph.input), "graph input")
    defined |= weights | inputs
    made_here = _outputs_once(graph, weights | inputs | outer)
    for node in graph.node:
        for name in node.input:
            if name and name not in defined:
                raise _undefined(node, name, graph, made_here)
        for inner in subgraphs(node):
            _check_graph(inner, frozenset(defined))
        defined.update(name for name in node.output if name)
    for value in graph.output:
        if value.name not in defined:
            raise ModelFileError(
                "A graph output is computed by no node", where=f"output {value.name!r}", remedy=_REMEDY
            )


def _unique(names: Iterable[str], kind: str) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            why = "the name is used twice" if name else "the name is empty"
            raise ModelFileError(
                "Two or more tensors cannot be told apart", where=f"{kind} {name!r}", why=why, remedy=_REMEDY
            )
        seen.add(name)
    return seen


def _outputs_once(graph: onnx.GraphProto, taken: set[str]) -> set[str]:
    made: set[str] = set()
    for node in graph.node:
        if not any(node.output):
            raise ModelFileError("A node has no output", where=describe(node), remedy=_REMEDY)
        for name in node.output:
            if name and (name in made or name in taken):
                raise ModelFileError(
                    "A tensor is defined more than once",
                    where=describe(node),
                    why=f"its output {name!r} has another definition",
                    remedy=_REMEDY,
                )
            made.add(name)
    return made


def _undefined(node: onnx.NodeProto, name: str, graph: onnx.GraphProto, made_here: set[str]) -> ModelFileError:
    if name not in made_here:
        what, why = "A node reads a tensor that nothing defines", f"input {name!r} has no definition"
    elif _reaches(graph, node, name):
        what, why = "The graph contains a cycle", f"input {name!r} is computed from this node's own output"
    else:
        what, why = "The nodes are not in order", f"input {name!r} is computed by a later node"
    return ModelFileError(what, where=describe(node), why=why, remedy=_REMEDY)


def _reaches(graph: onnx.GraphProto, start: onnx.NodeProto, target: str) -> bool:
    """Whether ``target`` is computed, over any number of nodes, from an output of ``start``."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    pending, seen = [name for name in start.output if name], set()
    while pending:
        name = pending.pop()
        if name == target:
            return True
        if name not in seen:
            seen.add(name)
            pending.extend(out for node in readers.get(name, []) for out in node.output if out)
    return False
