"""Counts and nesting, before anything walks the graph recursively."""

from __future__ import annotations

import onnx

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import subgraphs
from torq_byoc.frontend.limits import MAX_NESTING, MAX_NODES


def check_size(model: onnx.ModelProto) -> None:
    """Refuse models with too many nodes or too deeply nested sub-graphs (ModelFileError)."""
    count = sum(len(function.node) for function in model.functions)
    level = [model.graph]
    for _ in range(MAX_NESTING + 1):
        count += sum(len(graph.node) for graph in level)
        if count > MAX_NODES:
            raise _too_large(f"{count} nodes, at most {MAX_NODES}")
        level = [inner for graph in level for node in graph.node for inner in subgraphs(node)]
        if not level:
            return
    raise _too_large(f"sub-graphs are nested deeper than {MAX_NESTING} levels")


def _too_large(why: str) -> ModelFileError:
    return ModelFileError("The model is too large to compile", where="graph", why=why, remedy="split the model")
