"""Relax calls that know their ONNX node."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax


def onnx_node_span(node: str) -> tvm.ir.Span:
    """A span whose source name is an ONNX node name; the position is unused."""
    return tvm.ir.Span(tvm.ir.SourceName(node), 0, 0, 0, 0)


def with_node_spans(function: relax.Function, owners: Mapping[str, str]) -> relax.Function:
    """The same function, each call marked with the ONNX node that it implements.

    ``owners`` knows the variables that hold a node's output.  The helper bindings of a node come before
    its output, so a variable without an owner belongs to the next one that has one.
    """
    bindings = [b for block in function.body.blocks for b in block.bindings]
    following = binding_owners(bindings, owners)
    blocks = []
    position = 0
    for block in function.body.blocks:
        marked = [_marked(b, following[position + i]) for i, b in enumerate(block.bindings)]
        position += len(marked)
        blocks.append(type(block)(marked))
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def binding_owners(bindings: list[relax.Binding], owners: Mapping[str, str]) -> list[str | None]:
    """The node that each binding belongs to, as ``with_node_spans`` says; None after the last output."""
    result: list[str | None] = [None] * len(bindings)
    current: str | None = None
    for i in range(len(bindings) - 1, -1, -1):
        current = owners.get(bindings[i].var.name, current)
        result[i] = current
    return result


def _marked(binding: relax.Binding, node: str | None) -> relax.Binding:
    value = getattr(binding, "value", None)
    if node is None or not isinstance(value, relax.Call) or not isinstance(binding, relax.VarBinding):
        return binding
    call = relax.Call(value.op, list(value.args), value.attrs, value.ty_args, onnx_node_span(node))
    relax.expr._update_type(call, value.ty)
    return relax.VarBinding(binding.var, call)
