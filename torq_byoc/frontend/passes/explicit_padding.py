"""auto_pad and ConvTranspose's output_shape become explicit pads.

Before: ``y = Conv(x: 1x3x224x224, w: 8x3x3x3, auto_pad=SAME_UPPER, strides=[2, 2])``
After:  ``y = Conv(x, w, pads=[0, 0, 1, 1], strides=[2, 2])``
"""

from __future__ import annotations

import onnx
from onnx import helper

from torq_byoc.frontend.geometry import same_padding
from torq_byoc.frontend.graph import attribute
from torq_byoc.frontend.passes.editor import GraphEditor

_WINDOWED = ("Conv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose", "QLinearConv", "ConvInteger")


def explicit_padding(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    return sum(_rewrite(node, editor) for node in editor.graph.node if node.op_type in _WINDOWED)


def _rewrite(node: onnx.NodeProto, editor: GraphEditor) -> bool:
    mode = attribute(node, "auto_pad", b"NOTSET")
    output = attribute(node, "output_shape") if node.op_type == "ConvTranspose" else None
    if mode == b"NOTSET" and output is None:
        return False
    shape = editor.static_shape(node.input[0])
    kernel = _kernel(node, editor)
    if shape is None or kernel is None:
        return False
    ones = [1] * len(kernel)
    strides, dilations = attribute(node, "strides", ones), attribute(node, "dilations", ones)
    lower = mode == b"SAME_LOWER"
    if mode == b"VALID" and output is None:
        pairs = [(0, 0)] * len(kernel)
    elif node.op_type == "ConvTranspose":
        extra = attribute(node, "output_padding", [0] * len(kernel))
        wanted = output[-len(kernel) :] if output else [n * s for n, s in zip(shape[2:], strides, strict=True)]
        totals = [
            s * (n - 1) + e + d * (k - 1) + 1 - w
            for n, s, e, d, k, w in zip(shape[2:], strides, extra, dilations, kernel, wanted, strict=True)
        ]
        if min(totals) < 0:  # more is wanted than there is: zeros after the last row
            extra = [e + max(0, -t) for e, t in zip(extra, totals, strict=True)]
            totals = [max(0, t) for t in totals]
            _set(node, "output_padding", extra)
        pairs = [(t - t // 2, t // 2) if lower or mode == b"NOTSET" else (t // 2, t - t // 2) for t in totals]
    else:
        pairs = [
            same_padding(n, k, s, d, lower) for n, k, s, d in zip(shape[2:], kernel, strides, dilations, strict=True)
        ]
    _set(node, "pads", [before for before, _ in pairs] + [after for _, after in pairs], "auto_pad", "output_shape")
    return True


def _kernel(node: onnx.NodeProto, editor: GraphEditor) -> list[int] | None:
    given = attribute(node, "kernel_shape")
    if isinstance(given, list):
        return given
    position = 3 if node.op_type == "QLinearConv" else 1
    weights = editor.static_shape(node.input[position]) if len(node.input) > position else None
    return None if weights is None else list(weights[2:])


def _set(node: onnx.NodeProto, name: str, values: list[int], *replaced: str) -> None:
    """Set an attribute in place of itself and of others."""
    kept = [a for a in node.attribute if a.name not in (name, *replaced)]
    copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend([*copies, helper.make_attribute(name, values)])
