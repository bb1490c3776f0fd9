"""Gemm with constant weights multiplies by them as they are: no transposed weight, no factors.

Before: ``y = Gemm(x, w: NxK, c, alpha=2, beta=0.5, transB=1)``
After:  ``y = Gemm(x, 2 * transpose(w): KxN, 0.5 * c)``

A quantized weight is transposed in its integers: ``DequantizeLinear(w, axis=0)`` becomes
``DequantizeLinear(transpose(w), axis=1)``.  A Transpose of a quantized weight moves into it alike.  A factor above
zero goes into its scale, where it leaves a float32 number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor


def plain_gemm(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    changes = 0
    for node in editor.graph.node:
        if node.op_type == "Gemm":
            changes += _transpose_weight(node, editor) | _fold_factors(node, editor)
        elif node.op_type == "Transpose":
            changes += _transpose_dequantize(node, editor)
    return changes


def _transpose_weight(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    if not attribute(node, "transB", 0):
        return False
    weights = editor.array(node.input[1])
    if weights is not None:
        node.input[1] = editor.add_constant(weights.T, node.input[1])
    else:
        moved = _permuted_dequantize(node.input[1], (1, 0), node, editor)
        if moved is None:
            return False
        node.input[1] = moved
    _drop(node, "transB")
    return True


def _fold_factors(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    changed = False
    for name, index in (("alpha", 1), ("beta", 2)):
        factor = float(attribute(node, name, 1.0))
        if factor == 1.0 or len(node.input) <= index:
            continue
        values = editor.array(node.input[index])
        if values is not None and values.dtype == np.float32:
            folded: str | None = editor.add_constant(_times(values, factor), node.input[index])
        else:
            folded = _scaled_dequantize(node.input[index], factor, node, editor)
        if folded is not None:
            node.input[index] = folded
            _drop(node, name)
            changed = True
    return changed


def _times(values: np.ndarray, factor: float) -> np.ndarray:
    return (values.astype(np.float64) * factor).astype(np.float32)


def _scaled_dequantize(name: str, factor: float, before: onnx.NodeProto, editor: GraphEditor) -> str | None:
    """A dequantized constant times a factor; None when it is no such constant, or the scale is no number then."""
    source = editor.producers.get(name)
    if source is None or source.op_type != "DequantizeLinear" or editor.array(source.input[0]) is None:
        return None
    scale = editor.array(source.input[1])
    if scale is None or scale.dtype != np.float32:
        return None
    with np.errstate(all="ignore"):
        product = _times(scale, factor)
    if not (np.isfinite(product) & (product >= np.finfo(np.float32).tiny)).all():
        return None
    copy = onnx.NodeProto()
    copy.CopyFrom(source)
    copy.name, copy.output[0] = editor.fresh_name(source.name), editor.fresh_name(name)
    copy.input[1] = editor.add_constant(product, source.input[1])
    editor.insert_before(before, [copy])
    return copy.output[0]


def _transpose_dequantize(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    perm = attribute(node, "perm")
    if not isinstance(perm, list) or node.output[0] in editor.output_names:
        return False
    moved = _permuted_dequantize(node.input[0], perm, node, editor)
    return moved is not None and editor.bypass(node, moved)


def _permuted_dequantize(name: str, perm: Sequence[int], before: onnx.NodeProto, editor: GraphEditor) -> str | None:
    """A DequantizeLinear of the permuted integers; None when ``name`` is not a dequantized constant."""
    source = editor.producers.get(name)
    if source is None or source.op_type != "DequantizeLinear":
        return None
    integers, scale = editor.array(source.input[0]), editor.array(source.input[1])
    if integers is None or scale is None or integers.ndim != len(perm):
        return None
    axis = int(attribute(source, "axis", 1)) % max(integers.ndim, 1) if scale.size > 1 else 0
    blocks = int(attribute(source, "block_size", 0))
    operands = [*source.input]
    for position in range(len(operands) if blocks else 1):
        values = editor.array(operands[position])
        if values is not None:
            operands[position] = editor.add_constant(values.transpose(perm), operands[position])
    output = editor.fresh_name(name)
    extra: dict[str, Any] = {"axis": list(perm).index(axis)} if scale.size > 1 else {}
    extra |= {"block_size": blocks} if blocks else {}
    copy = editor.node("DequantizeLinear", operands, output, source, **extra)
    editor.insert_before(before, [copy])
    return output


def _drop(node: onnx.NodeProto, name: str) -> None:
    kept = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
