"""A node as a tensor expression: its operands, its result, and the registry of operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from torq_byoc.kernels.graph import Node, OpGraph

RESULT = "result"
"""Name of the last stage of every definition."""


@dataclass(frozen=True, eq=False)
class Operands:
    """The placeholders of a node: one an input, and those of its rescale that it has.

    ``inputs[i]`` belongs to ``node.inputs[i]`` and is named ``input<i>``.
    """

    inputs: tuple[Any, ...]
    bias: Any | None
    scale: Any | None
    table: Any | None

    def all(self) -> list[Any]:
        """In the order in which the function takes them."""
        return [*self.inputs, *(extra for extra in (self.bias, self.scale, self.table) if extra is not None)]


@dataclass(frozen=True, eq=False)
class Definition:
    """A node's tensor expression: placeholders and the result stage."""

    operands: Operands
    result: Any

    def prim_func(self) -> Any:
        """The unscheduled TIR function: operands, then the result."""
        from tvm import te

        return te.create_prim_func([*self.operands.all(), self.result])


Build = Callable[[OpGraph, Node, Operands], Any]
_BUILDERS: dict[str, Build] = {}


def defines(*ops: str) -> Callable[[Build], Build]:
    """Decorator: make a builder of result stages available for some operators."""

    def record(build: Build) -> Build:
        _BUILDERS.update(dict.fromkeys(ops, build))
        return build

    return record


def defined_ops() -> tuple[str, ...]:
    """Operators that have a tensor expression, sorted."""
    return tuple(sorted(_BUILDERS))


def define(graph: OpGraph, node: Node) -> Definition:
    """The tensor expression of a node.

    Raises:
        KeyError: the operator has none.
    """
    operands = _placeholders(graph, node)
    return Definition(operands, _BUILDERS[node.op](graph, node, operands))


def arguments(graph: OpGraph, node: Node) -> list[np.ndarray]:
    """Values of the operands after the inputs (bias, scale, table), in the function's order."""
    values = []
    if node.rescale is not None:
        values.append(np.atleast_1d(node.rescale.bias))
        if node.rescale.scale is not None:
            values.append(np.atleast_1d(node.rescale.scale))
    if "table" in node.attrs:
        values.append(np.asarray(node.attrs["table"], dtype=np.int16))
    return values


def _placeholders(graph: OpGraph, node: Node) -> Operands:
    from tvm import te

    infos = [graph.tensors[name] for name in node.inputs]
    inputs = tuple(te.placeholder(info.shape, info.dtype.value, f"input{i}") for i, info in enumerate(infos))
    bias = scale = table = None
    if node.rescale is not None:
        bias_value = np.atleast_1d(node.rescale.bias)
        bias = te.placeholder(bias_value.shape, "float32" if bias_value.dtype.kind == "f" else "int32", "bias")
        if node.rescale.scale is not None:
            scale = te.placeholder(np.atleast_1d(node.rescale.scale).shape, "int32", "scale")
    if "table" in node.attrs:
        table = te.placeholder(np.shape(node.attrs["table"]), "int16", "table")
    return Operands(inputs, bias, scale, table)
