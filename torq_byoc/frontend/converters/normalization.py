"""Softmax, and normalisations that need more than one op or have more than one result."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as stock

from torq_byoc.frontend.converters.support import Converter, OnnxCall, dtype_of, static_shape
from torq_byoc.frontend.geometry import normalize_axis


def softmax(op: Callable[..., relax.Expr]) -> Converter:
    """Softmax and LogSoftmax -> the op over their axis (prepared models name one in every operator set)."""

    def convert(call: OnnxCall) -> relax.Expr:
        x = call.data()
        axis = int(call.attrs.get("axis", -1))
        return op(x, axis=normalize_axis(axis, len(static_shape(x, call)), call.name))

    return convert


def local_response(call: OnnxCall) -> relax.Expr:
    """LRN -> ``divide(x, power(add(multiply(avg, alpha), bias), beta))``.

    ``avg`` is ``reshape(nn.avg_pool2d(reshape(multiply(x, x))))``: the channel axis is laid along the pool's
    rows (shape [N, 1, C, H*W], kernel [size, 1]), zeros counted, so it is the window's sum over ``size``.
    """
    x = call.data()
    shape = static_shape(x, call)
    size = int(call.attrs["size"])
    before, after = (size - 1) // 2, size // 2
    rows = (shape[0], 1, shape[1], math.prod(shape[2:]))
    squares = relax.op.reshape(relax.op.multiply(x, x), rows)
    pooled = relax.op.nn.avg_pool2d(
        squares, pool_size=(size, 1), strides=(1, 1), padding=(before, 0, after, 0), count_include_pad=True
    )
    dtype = dtype_of(x)
    scaled = relax.op.multiply(
        relax.op.reshape(pooled, shape), relax.const(float(call.attrs.get("alpha", 1e-4)), dtype)
    )
    base = relax.op.add(scaled, relax.const(float(call.attrs.get("bias", 1.0)), dtype))
    return relax.op.divide(x, relax.op.power(base, relax.const(float(call.attrs.get("beta", 0.75)), dtype)))


def layer_normalization(call: OnnxCall) -> relax.Expr:
    """LayerNormalization -> ``nn.layer_norm``; written out where the mean or the deviation is a result too."""
    results = int(call.attrs["tvm_custom"]["num_outputs"])
    if results == 1:
        return call.stock(stock.LayerNormalization)
    x, dtype = call.data(), dtype_of(call.data())
    rank = len(static_shape(x, call))
    axes = list(range(normalize_axis(int(call.attrs.get("axis", -1)), rank, call.name), rank))
    wide = call.builder.normalize(relax.op.astype(x, "float32"))
    mean = call.builder.normalize(relax.op.mean(wide, axes, keepdims=True))
    centred = call.builder.normalize(relax.op.subtract(wide, mean))
    inverse = _inverse_root_mean(centred, axes, call)
    result = relax.op.multiply(relax.op.astype(relax.op.multiply(centred, inverse), dtype), call.data(1))
    bias = call.input(2)
    return relax.Tuple([result if bias is None else relax.op.add(result, bias), mean, inverse][:results])


def rms_normalization(call: OnnxCall) -> relax.Expr:
    """RMSNormalization -> ``nn.rms_norm``; written out where it is over all axes, which that op cannot say."""
    x = call.data()
    rank = len(static_shape(x, call))
    if normalize_axis(int(call.attrs.get("axis", -1)), rank, call.name):
        return call.stock(stock.RMSNormalization)
    wide = call.builder.normalize(relax.op.astype(x, "float32"))
    scaled = relax.op.multiply(wide, _inverse_root_mean(wide, list(range(rank)), call))
    return relax.op.multiply(relax.op.astype(scaled, dtype_of(x)), call.data(1))


def _inverse_root_mean(x: relax.Expr, axes: list[int], call: OnnxCall) -> relax.Expr:
    """``divide(1, sqrt(add(mean(multiply(x, x)), epsilon)))``."""
    square = relax.op.mean(relax.op.multiply(x, x), axes, keepdims=True)
    epsilon = relax.const(float(call.attrs.get("epsilon", 1e-5)), "float32")
    root = relax.op.sqrt(relax.op.add(square, epsilon))
    return call.builder.normalize(relax.op.divide(relax.const(1.0, "float32"), root))


CONVERTERS: dict[str, Converter] = {
    "Softmax": softmax(relax.op.nn.softmax),
    "LogSoftmax": softmax(relax.op.nn.log_softmax),
    "LRN": local_response,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
}
