"""Operators on integers become float operators between DequantizeLinear and QuantizeLinear.

Before: ``y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b)``
After:  ``y = QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(b, xs * ws)), ys, yz)``

Both forms say the same; the rest of the compiler knows only the second one.  Operators that quantize their data
themselves become that quantization, an integer product and what scales its result.  Each module holds a family
and a ``REWRITES`` table: (domain, operator) -> function of a ``Rewriter``.
"""

from __future__ import annotations

from torq_byoc.frontend.graph import DEFAULT_DOMAINS
from torq_byoc.frontend.passes.editor import GraphEditor
from torq_byoc.frontend.passes.qoperators import (
    attention,
    dynamic,
    elementwise,
    packed_weights,
    pooling,
    products,
    softmax,
)
from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter

REWRITES: dict[tuple[str, str], Rewrite] = {
    **products.REWRITES,
    **elementwise.REWRITES,
    **softmax.REWRITES,
    **pooling.REWRITES,
    **dynamic.REWRITES,
    **attention.REWRITES,
    **packed_weights.REWRITES,
}

_FIRST_OPSET = 10
"""The operator set in which QuantizeLinear and DequantizeLinear appeared."""


def qoperator_to_qdq(editor: GraphEditor) -> int:
    """Returns the number of nodes rewritten."""
    changes = 0
    for node in editor.graph.node:
        rewrite = REWRITES.get(("" if node.domain in DEFAULT_DOMAINS else node.domain, node.op_type))
        if rewrite is not None:
            rewriter = Rewriter(node, editor)
            if editor.opset < _FIRST_OPSET:
                raise rewriter.refusal(f"the model's operator set is {editor.opset}; scales came with {_FIRST_OPSET}")
            rewrite(rewriter)
            changes += 1
    return changes
