"""An If whose condition is known is replaced by the branch that is taken.

Before: ``y = If(true) {then: t = Relu(x); out t} {else: e = Neg(x); out e}``
After:  ``y = Relu(x)``
"""

from __future__ import annotations

import onnx
from onnx import helper

from torq_byoc.frontend.graph import subgraphs
from torq_byoc.frontend.passes.editor import GraphEditor


def inline_constant_if(editor: GraphEditor) -> int:
    """Returns the number of If nodes replaced."""
    changes = 0
    for node in editor.graph.node:
        if node.op_type != "If" or not node.input:
            continue
        condition = editor.array(node.input[0])
        if condition is not None and condition.size == 1:
            _inline(node, bool(condition.reshape(-1)[0]), editor)
            changes += 1
    return changes


def _inline(node: onnx.NodeProto, taken: bool, editor: GraphEditor) -> None:
    wanted = "then_branch" if taken else "else_branch"
    branch = onnx.GraphProto()
    branch.CopyFrom(next(a.g for a in node.attribute if a.name == wanted))
    own = [name for inner in branch.node for name in inner.output if name] + [t.name for t in branch.initializer]
    # Sibling branches may use the same names, so every name gets a fresh one in the outer graph.
    renamed = {name: editor.fresh_name(name) for name in own}
    _rename(branch, renamed)
    for tensor in branch.initializer:
        editor.graph.initializer.add().CopyFrom(tensor)
    results = [
        helper.make_node("Identity", [renamed.get(value.name, value.name)], [name], name=editor.fresh_name(node.name))
        for value, name in zip(branch.output, node.output, strict=False)
    ]
    for inner in branch.node:
        inner.name = editor.fresh_name(inner.name or node.name)
    editor.insert_before(node, [*branch.node, *results])
    editor.remove(node)


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
