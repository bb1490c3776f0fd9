"""ConvInteger and MatMulInteger -> products of int32 tensors.

``matmul(subtract(astype(a), za), subtract(astype(b), zb))``, and the convolution alike.  A zero point of 0 is left
out, and a constant operand is stored without its zero point.  Where the data's zero point is known only at run time
and the weights are constant, their sums take it out of the product afterwards: ``(a - za) b = a b - za sum(b)``, so
that the product itself has constant parameters.
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as stock

from torq_byoc.frontend.converters.support import (
    Converter,
    OnnxCall,
    check_parameter,
    constant,
    constant_array,
    static_shape,
)

_SUM = "int32"


def matmul(call: OnnxCall) -> relax.Expr:
    """MatMulInteger; a vector of zero points belongs to the rows of a or the columns of b."""
    a, b = call.data(0), call.data(1)
    zeros = _zero_point(call, 2, rows=True), _zero_point(call, 3, rows=False)
    right = _centred(b, zeros[1], call)
    weights = constant_array(right)
    if weights is None or constant_array(zeros[0]) is not None or zeros[0] is None or len(static_shape(a, call)) < 2:
        return relax.op.matmul(_centred(a, zeros[0], call), right, out_dtype=_SUM)
    product = call.builder.emit(relax.op.matmul(relax.op.astype(a, _SUM), right, out_dtype=_SUM))
    sums = constant(weights.sum(axis=-2, keepdims=weights.ndim > 1, dtype=np.int32))
    return relax.op.subtract(product, relax.op.multiply(relax.op.astype(zeros[0], _SUM), sums))


def convolution(call: OnnxCall) -> relax.Expr:
    """ConvInteger; outside the data there are its zero points, and a vector of them belongs to the filters."""
    x, w = call.data(0), call.data(1)
    zeros = _scalar(call, 2), _per_filter(call, 3)
    right = _centred(w, zeros[1], call)
    weights = constant_array(right)
    if weights is None or zeros[0] is None or constant_array(zeros[0]) is not None:
        return _convolved(call, _centred(x, zeros[0], call), right)
    product = call.builder.emit(_convolved(call, call.builder.emit(relax.op.astype(x, _SUM)), right))
    sums = _weights_inside(weights, static_shape(x, call)[2:], static_shape(product, call)[2:], call)
    return relax.op.subtract(product, relax.op.multiply(relax.op.astype(zeros[0], _SUM), constant(sums)))


def _weights_inside(
    weights: np.ndarray, extents: tuple[int, ...], results: tuple[int, ...], call: OnnxCall
) -> np.ndarray:
    """For every place of the result the sum of the weights that lie on data, not on the border: int32 [1, O, ...]."""
    rank = len(extents)
    pads = call.attrs.get("pads", [0] * (2 * rank))
    steps = call.attrs.get("strides", [1] * rank)
    gaps = call.attrs.get("dilations", [1] * rank)
    by_tap = weights.sum(axis=1, dtype=np.int32)
    sums = np.zeros((len(weights), *results), np.int32)
    for tap in np.ndindex(weights.shape[2:]):
        inside = np.ones((1,) * rank, bool)
        for axis in range(rank):
            places = np.arange(results[axis]) * steps[axis] + tap[axis] * gaps[axis] - pads[axis]
            held = (places >= 0) & (places < extents[axis])
            inside = inside & held.reshape([-1 if i == axis else 1 for i in range(rank)])
        sums += by_tap[(slice(None), *tap)].reshape(-1, *[1] * rank) * inside
    return sums[None]


def _convolved(call: OnnxCall, data: relax.Expr, weights: relax.Expr) -> relax.Expr:
    """TVM's convolution of these operands; it takes no zero points."""
    return call.stock(stock.Conv, {0: data, 1: weights, 2: None, 3: None})


def _centred(value: relax.Expr, zero: relax.Expr | None, call: OnnxCall) -> relax.Expr:
    """Integers less their zero point, as int32."""
    if zero is not None:
        check_parameter(call, "zero point", static_shape(zero, call), static_shape(value, call))
    known, offset = constant_array(value), constant_array(zero)
    if known is not None and (zero is None or offset is not None):
        return constant(known.astype(np.int32) - (0 if offset is None else offset.astype(np.int32)))
    wide = call.builder.emit(relax.op.astype(value, _SUM))
    if zero is None or (offset is not None and not offset.any()):
        return wide
    offset32 = relax.op.astype(zero, _SUM) if offset is None else constant(offset.astype(np.int32))
    return call.builder.emit(relax.op.subtract(wide, offset32))


def _scalar(call: OnnxCall, index: int) -> relax.Expr | None:
    value = call.input(index)
    if value is None:
        return None
    if int(np.prod(static_shape(value, call))) != 1:
        check_parameter(call, "zero point of data", static_shape(value, call), ())
    return _reshaped(value, ())


def _zero_point(call: OnnxCall, index: int, *, rows: bool) -> relax.Expr | None:
    value = call.input(index)
    if value is None:
        return None
    shape = static_shape(value, call)
    if int(np.prod(shape)) == 1:
        return _reshaped(value, ())
    return _reshaped(value, (*shape, 1)) if rows and len(shape) == 1 else value


def _per_filter(call: OnnxCall, index: int) -> relax.Expr | None:
    value = call.input(index)
    if value is None:
        return None
    count = int(np.prod(static_shape(value, call)))
    rank = len(static_shape(call.data(1), call))
    return _reshaped(value, () if count == 1 else (count,) + (1,) * (rank - 1))


def _reshaped(value: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
    known = constant_array(value)
    return relax.op.reshape(value, shape) if known is None else constant(known.reshape(shape))


CONVERTERS: dict[str, Converter] = {"MatMulInteger": matmul, "ConvInteger": convolution}
