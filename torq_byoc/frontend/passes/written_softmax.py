"""A Softmax that an exporter wrote out becomes the operator.

Before: ``e = Exp(Sub(x, ReduceMax(x))); y = Div(e, ReduceSum(e))``
After:  ``y = Softmax(x)``

Whatever is taken from all of a row alike leaves its Softmax as it is, be it the row's largest value or another.
Rounding every step to 8 bits does not.

Operator sets below 13 have no Softmax along one axis in the middle: there the axis goes to the end and back.
"""

from __future__ import annotations

import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.frontend.passes.one_axis_softmax import ONE_AXIS_SINCE

_RESHAPING = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})


def written_softmax(editor: GraphEditor) -> int:
    """Returns the number of Softmax operators made."""
    return sum(_rewrite(node, editor) for node in editor.graph.node if node.op_type == "Div")


def _rewrite(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    exponential = editor.producers.get(node.input[0])
    if exponential is None or exponential.op_type != "Exp" or node.input[0] in editor.output_names:
        return False
    shape, axis = editor.static_shape(node.output[0]), _summed_axis(node.input[1], node.input[0], editor)
    if shape is None or axis is None or len(editor.readers[node.input[0]]) != 2:
        return False
    axis %= len(shape)
    row = _row(shape, axis)
    known = editor.static_shape(node.input[0]) == shape and editor.static_shape(node.input[1]) == row
    if not known:
        return False
    source = _without_row_constant(exponential.input[0], shape, row, editor)
    if editor.opset < ONE_AXIS_SINCE and any(extent != 1 for extent in shape[axis + 1 :]):
        _at_the_end(source, axis, len(shape), node, editor)
    else:
        editor.replace(node, [editor.node("Softmax", [source], node.output[0], node, axis=axis)])
    return True


def _at_the_end(source: str, axis: int, rank: int, node: onnx.NodeProto, editor: GraphEditor) -> None:
    """Put a Softmax in a node's place along an axis that changes places with the last one for it."""
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    name = node.output[0]
    first = editor.node("Transpose", [source], editor.fresh_name(f"{name}_rows"), node, perm=order)
    rows = editor.node("Softmax", [first.output[0]], editor.fresh_name(f"{name}_last"), node, axis=rank - 1)
    last = editor.node("Transpose", [rows.output[0]], name, node, perm=order)
    editor.insert_before(node, [first, rows, last])
    editor.remove(node)
    rows.name = node.name


def _row(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of one number a row."""
    return tuple(1 if position == axis else extent for position, extent in enumerate(shape))


def _summed_axis(name: str, summed: str, editor: GraphEditor) -> int | None:
    """The axis along which a tensor is the sum of another one, but for its shape; None where it is no such sum."""
    node = editor.producers.get(name)
    while node is not None and node.op_type in _RESHAPING:
        node = editor.producers.get(node.input[0])
    if node is None or node.op_type != "ReduceSum" or node.input[0] != summed:
        return None
    stored = editor.array(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    axes = attribute(node, "axes", []) if stored is None else stored.reshape(-1).tolist()
    return int(axes[0]) if len(axes) == 1 else None


def _without_row_constant(name: str, shape: tuple[int, ...], row: tuple[int, ...], editor: GraphEditor) -> str:
    """What one number a row was taken from to give a tensor; the tensor itself where there is none."""
    node = editor.producers.get(name)
    if node is None or node.op_type != "Sub" or editor.sole_reader(name) is None:
        return name
    whole = editor.static_shape(node.input[0]) == shape and editor.static_shape(node.input[1]) == row
    return node.input[0] if whole else name
