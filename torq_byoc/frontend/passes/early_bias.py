"""A bias is added to the matrix product itself, not to what becomes of it.

Before: ``y = Add(Reshape(MatMul(x, w)), b)``, or ``y = Add(Add(MatMul(x, w), z), b)``
After:  ``y = Reshape(Add(MatMul(x, w), b))``, or ``y = Add(Add(MatMul(x, w), b), z)``

Exporters write dense layers of more than two dimensions and recurrent cells in the first forms.  In the others the
product starts from its bias: one operator less, and one rounding.  A bias of leading dimensions of 1 becomes a vector,
as dense layers have it.
"""

from __future__ import annotations

import numpy as np
import onnx

from torq_byoc.frontend.passes.editor import GraphEditor


def early_bias(editor: GraphEditor) -> int:
    """Returns the number of biases moved."""
    moved: set[str] = set()
    for node in editor.graph.node:
        stored = [name for name in node.input if name in editor.constants]
        computed = [name for name in node.input if name not in editor.constants]
        if node.op_type != "Add" or len(stored) != 1 or len(computed) != 1 or computed[0] in moved:
            continue
        if _flatten(node, computed[0], stored[0], editor):
            moved.add(node.output[0])
            continue
        between = editor.producers.get(computed[0])
        alone = editor.sole_reader(computed[0]) is not None
        if between is not None and alone and _move(node, between, stored[0], editor):
            moved.add(node.output[0])
    return len(moved)


def _flatten(node: onnx.NodeProto, product: str, bias: str, editor: GraphEditor) -> bool:
    """Give a bias that is added to a matrix product one dimension, where it has more."""
    shape, values = editor.static_shape(node.output[0]), editor.array(bias)
    if not shape or values is None or values.ndim < 2 or editor.static_shape(product) != shape:
        return False  # a bias of more dimensions than the product has adds some to the result
    if not _is_product(product, bias, shape, editor):
        return False
    editor.replace(node, [editor.node("Add", [product, _vector(bias, editor)], node.output[0], node)])
    return True


def _move(node: onnx.NodeProto, between: onnx.NodeProto, bias: str, editor: GraphEditor) -> bool:
    """Swap an addition of a bias with the operator before it, where that reads a matrix product."""
    shape = editor.static_shape(node.output[0])
    if not shape or editor.static_shape(between.output[0]) != shape:
        return False
    products = [name for name in _operands(between, editor) if _is_product(name, bias, shape, editor)]
    if not products:
        return False
    first = editor.node("Add", [products[0], _vector(bias, editor)], editor.fresh_name(f"{products[0]}_biased"), node)
    inputs = [first.output[0] if name == products[0] else name for name in between.input]
    second = editor.node(between.op_type, inputs, node.output[0], between)
    second.attribute.extend(between.attribute)
    editor.remove(between)
    editor.replace(node, [first, second])
    return True


def _operands(between: onnx.NodeProto, editor: GraphEditor) -> list[str]:
    """Operands that a bias may be added to instead of to the result."""
    if between.op_type == "Reshape":
        return [between.input[0]]
    computed = [name for name in between.input if name not in editor.constants]
    return computed if between.op_type == "Add" and len(computed) == 2 else []


def _is_product(name: str, bias: str, shape: tuple[int, ...], editor: GraphEditor) -> bool:
    """Whether a tensor is read once, and is a product with stored weights, whose columns are those of the result.

    Args:
        name: the tensor.
        bias: a constant; it has to hold one number a column.
        shape: of what becomes of the product.
        editor: knows the model.
    """
    node, values, found = editor.producers.get(name), editor.array(bias), editor.static_shape(name)
    if node is None or node.op_type != "MatMul" or editor.sole_reader(name) is None or values is None or not found:
        return False
    weights = editor.array(node.input[1])
    columns = weights.shape[-1] if weights is not None and weights.ndim == 2 else 0
    alike = columns == found[-1] == shape[-1] and np.prod(found) == np.prod(shape)
    return alike and values.size == columns and values.shape[-1:] == (columns,)


def _vector(bias: str, editor: GraphEditor) -> str:
    """A bias of one dimension."""
    values = editor.array(bias)
    return bias if values is None or values.ndim == 1 else editor.add_constant(values.reshape(-1), bias)
