"""What depends on nothing but stored tensors and known shapes is computed now.

Before: ``s = Shape(x: 1x64x7x7); n = Gather(s, 0); t = Concat(n, -1); y = Reshape(x, t)``
After:  ``y = Reshape(x, [1, -1])``

DequantizeLinear is never folded: quantized weights stay whole for the integer arithmetic.  Only operators
that cost no more than their result are computed (any operator does when its data have no elements), and only
results within a byte budget are kept, so a small file cannot ask for hours or terabytes.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from torq_byoc.errors import ModelFileError
from torq_byoc.frontend.graph import DEFAULT_DOMAINS, attribute, describe
from torq_byoc.frontend.limits import MAX_FOLDED_BYTES, MAX_FOLDED_TOTAL_BYTES
from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.frontend.validator.division import check_divisor

_CHEAP = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Clip",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "CumSum",
        "Div",
        "Equal",
        "Erf",
        "Exp",
        "Expand",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Mean",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "NonZero",
        "Not",
        "OneHot",
        "Or",
        "Pad",
        "Pow",
        "QuantizeLinear",
        "Range",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Relu",
        "Reshape",
        "Round",
        "ScatterND",
        "Sigmoid",
        "Sign",
        "Size",
        "Slice",
        "Softmax",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tanh",
        "Tile",
        "Transpose",
        "Trilu",
        "Unique",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)

_CHOOSING = frozenset({"Compress", "NonZero", "Unique"})
"""Operators whose result is as large as the data make it: at most one index for each dimension of each element."""


def fold_constants(editor: GraphEditor) -> int:
    """Returns the number of nodes replaced by their results."""
    budget = MAX_FOLDED_TOTAL_BYTES
    folded = 0
    for node in editor.graph.node:
        if node.domain not in DEFAULT_DOMAINS or _is_stored_output(node, editor):
            continue
        values = _known_shape(node, editor) if node.op_type in ("Shape", "Size") else _evaluate(node, editor, budget)
        if values is None:
            continue
        size = sum(value.nbytes for value in values)
        if size > min(budget, MAX_FOLDED_BYTES):
            continue
        budget -= size
        folded += 1
        for name, value in zip(filter(None, node.output), values, strict=True):
            editor.store_result(name, value, node)
        editor.remove(node)
    return folded


def _is_stored_output(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    """Whether the node only hands out a stored tensor as a graph output: it is folded already."""
    return node.op_type == "Identity" and node.output[0] in editor.output_names


def _known_shape(node: onnx.NodeProto, editor: GraphEditor) -> list[np.ndarray] | None:
    shape = editor.static_shape(node.input[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return [np.array(int(np.prod(shape, dtype=np.int64)), np.int64)]
    start, end = attribute(node, "start", 0), attribute(node, "end", len(shape))
    return [np.array(shape[start:end], np.int64)]


def _evaluate(node: onnx.NodeProto, editor: GraphEditor, budget: int) -> list[np.ndarray] | None:
    """The node's outputs, None when it is not constant, not cheap, or too large."""
    names = [name for name in node.input if name]
    if not names or not all(name in editor.constants for name in names):
        return None
    if node.op_type not in _CHEAP and not (node.input[0] and 0 in editor.constants[node.input[0]].dims):
        return None
    feeds = {name: editor.array(name) for name in names}
    if any(feed is None or feed.dtype.kind not in "fiub" for feed in feeds.values()):
        return None
    shapes = [editor.static_shape(name) for name in node.output if name]
    if node.op_type in _CHOOSING:
        shapes = [(sum(feed.size * max(feed.ndim, 1) for feed in feeds.values() if feed is not None),)] * len(shapes)
    if not _within(shapes, min(budget, MAX_FOLDED_BYTES)):
        return None
    if node.op_type in ("Div", "Mod"):
        check_divisor(node, editor.array(node.input[1]))
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    graph = helper.make_graph([node], "fold", [helper.make_value_info(n, onnx.TypeProto()) for n in feeds], outputs)
    single = helper.make_model(graph, opset_imports=editor.model.opset_import)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(single).run(None, feeds)
    except NotImplementedError:
        return None
    except Exception as error:
        raise ModelFileError(
            "A node with constant inputs cannot be computed",
            where=describe(node),
            why=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300],
            remedy="export the model again; the node's inputs do not fit the operator",
        ) from error
    arrays = [np.asarray(result) for result in results]
    return arrays if all(array.dtype.kind in "fiub" for array in arrays) else None


def _within(shapes: list[tuple[int, ...] | None], limit: int) -> bool:
    """Whether results of these shapes fit at eight bytes an element; an unknown shape does not count as fitting."""
    return all(shape is not None and 8 * int(np.prod(shape, dtype=np.float64)) <= limit for shape in shapes)
