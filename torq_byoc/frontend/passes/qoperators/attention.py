"""QAttention: projections of integers to queries, keys and values, then attention in real numbers.

Inputs: data [batch, n, in], weights [in, 3 * hidden], bias [3 * hidden], their scales, a mask [batch, n] whose ones
may be attended to, zero points.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from torq_byoc.frontend.passes.qoperators.products import scaled_product
from torq_byoc.frontend.passes.qoperators.rewriter import Rewrite, Rewriter

_FILL = -10000.0


def _attention(r: Rewriter) -> None:
    heads, hidden = _check(r)
    operands = [r.name(0), r.name(1), r.name(6), r.name(7)]
    projected = r.emit("Add", [scaled_product(r, operands, r.scale(3), r.scale(4)), r.name(2)])
    query, value = (_by_heads(r, projected, place * hidden, heads, hidden, [0, 2, 1, 3]) for place in (0, 2))
    turned = _by_heads(r, projected, hidden, heads, hidden, [0, 2, 3, 1])
    factor = r.attribute("scale", 0.0) or 1.0 / math.sqrt(hidden // heads)
    scores = r.emit("Mul", [r.emit("MatMul", [query, turned]), r.constant(np.array(factor, np.float32), "factor")])
    if r.name(5):
        scores = r.emit("Add", [scores, _mask(r)])
    weights = r.emit("Softmax", [scores], axis=3)
    result = r.emit("Transpose", [r.emit("MatMul", [weights, value])], perm=[0, 2, 1, 3])
    r.emit("Reshape", [result, r.constant(np.array([0, 0, hidden], np.int64), "joined")])
    r.finish()


def _check(r: Rewriter) -> tuple[int, int]:
    """Heads and hidden width.

    Raises:
        UnsupportedOpError: the form of this operator is not among those above.
    """
    shape = r.editor.static_shape(r.name(1))
    heads = int(r.attribute("num_heads", 0))
    if shape is None or len(shape) != 2 or heads < 1 or shape[1] % (3 * heads):
        raise r.refusal(f"weights of shape {shape} do not hold queries, keys and values of {heads} heads")
    for name in ("unidirectional", "do_rotary", "past_present_share_buffer"):
        if r.attribute(name, 0):
            raise r.refusal(f"its attribute {name} is set")
    if r.name(8) or len([n for n in r.node.output if n]) > 1:
        raise r.refusal("it keeps keys and values of earlier calls")
    if r.name(5) and r.rank(5) != 2:
        raise r.refusal(f"its mask {r.name(5)!r} is not of shape [batch, n]")
    return heads, shape[1] // 3


def _by_heads(r: Rewriter, projected: str, first: int, heads: int, hidden: int, order: list[int]) -> str:
    """``hidden`` columns of [batch, n, 3 * hidden] as [batch, n, heads, hidden / heads], transposed."""
    bounds = [r.constant(np.array([n], np.int64), "bound") for n in (first, first + hidden, 2)]
    shape = r.constant(np.array([0, 0, heads, hidden // heads], np.int64), "shape")
    return r.emit("Transpose", [r.emit("Reshape", [r.emit("Slice", [projected, *bounds]), shape])], perm=order)


def _mask(r: Rewriter) -> str:
    """(1 - mask) times the value that takes a place out of the softmax, for every head and query."""
    mask = r.emit("Cast", [r.name(5)], to=TensorProto.FLOAT)
    hidden = r.emit("Sub", [r.constant(np.array(1, np.float32), "one"), mask])
    fill = r.constant(np.array(r.attribute("mask_filter_value", _FILL), np.float32), "fill")
    return r.emit("Reshape", [r.emit("Mul", [hidden, fill]), r.constant(np.array([0, 1, 1, -1], np.int64), "over")])


REWRITES: dict[tuple[str, str], Rewrite] = {("com.microsoft", "QAttention"): Rewrite(_attention, needs=(0, 1, 2, 3, 4))}
