"""If nodes become straight-line code: the branch that is taken, or both branches and a choice of results.

Before: ``y = If(true) {then: t = Relu(x); out t} {else: e = Neg(x); out e}``
After:  ``y = Relu(x)``

Before: ``y = If(c) {then: t = Relu(x); out t} {else: e = Neg(x); out e}`` with c known at run time only
After:  ``t = Relu(x); e = Neg(x); y = Where(c, t, e)``

Operators have no side effects, so computing both branches is safe; it needs results of one shape.
"""

from __future__ import annotations

import onnx
from onnx import helper

from torq_byoc.frontend.graph import subgraphs
from torq_byoc.frontend.passes.editor import GraphEditor

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def inline_if(editor: GraphEditor) -> int:
    """Returns the number of If nodes replaced."""
    changes = 0
    for node in editor.graph.node:
        if node.op_type != "If" or not node.input:
            continue
        condition = editor.array(node.input[0])
        if condition is not None and condition.size == 1:
            taken = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
            body, results = _inlined(node, taken, editor)
            replacement = [
                helper.make_node("Identity", [result], [name], name=editor.fresh_name(node.name))
                for result, name in zip(results, node.output, strict=False)
            ]
        elif _results_alike(node):
            then_body, then_results = _inlined(node, "then_branch", editor)
            else_body, else_results = _inlined(node, "else_branch", editor)
            body = [*then_body, *else_body]
            replacement = [
                helper.make_node("Where", [node.input[0], yes, no], [name], name=editor.fresh_name(node.name))
                for yes, no, name in zip(then_results, else_results, node.output, strict=False)
            ]
        else:
            continue
        editor.insert_before(node, [*body, *replacement])
        editor.remove(node)
        changes += 1
    return changes


def _branch(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    return next(a.g for a in node.attribute if a.name == name)


def _results_alike(node: onnx.NodeProto) -> bool:
    """Whether both branches give results of the same declared shapes and types, without drawing random numbers."""
    branches = [_branch(node, name) for name in ("then_branch", "else_branch")]
    if any(inner.op_type in _RANDOM for branch in branches for inner in branch.node):
        return False
    shapes = [[_declared(value) for value in branch.output] for branch in branches]
    return shapes[0] == shapes[1] and None not in shapes[0]


def _declared(value: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    """Element type and extents (or their symbols) of a branch result, None when something is not declared."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or any(not dim.WhichOneof("value") for dim in tensor.shape.dim):
        return None
    return (tensor.elem_type, *(dim.dim_param or dim.dim_value for dim in tensor.shape.dim))


def _inlined(node: onnx.NodeProto, name: str, editor: GraphEditor) -> tuple[list[onnx.NodeProto], list[str]]:
    """Nodes of a branch under names that are fresh in the outer graph, and the names of its results."""
    branch = onnx.GraphProto()
    branch.CopyFrom(_branch(node, name))
    own = [output for inner in branch.node for output in inner.output if output]
    own += [tensor.name for tensor in branch.initializer]
    # Sibling branches may use the same names, so every name gets a fresh one in the outer graph.
    renamed = {old: editor.fresh_name(old) for old in own}
    _rename(branch, renamed)
    for tensor in branch.initializer:
        editor.graph.initializer.add().CopyFrom(tensor)
    for inner in branch.node:
        inner.name = editor.fresh_name(inner.name or node.name)
    return list(branch.node), [renamed.get(value.name, value.name) for value in branch.output]


def _rename(graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
    """Rename what the graph defines and reads; nested graphs that define a name anew keep theirs."""
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = renamed.get(name, name)
        for inner in subgraphs(node):
            own = {v.name for v in inner.input} | {t.name for t in inner.initializer}
            own |= {name for n in inner.node for name in n.output}
            _rename(inner, {old: new for old, new in renamed.items() if old not in own})
            for value in inner.output:
                if value.name not in own:
                    value.name = renamed.get(value.name, value.name)
