"""Layer, RMS and local response normalisation, variance, and PRelu (its slopes act like a norm's gains)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns import affine
from torq_byoc.relay_patterns.affine import Affine
from torq_byoc.relay_patterns.arithmetic import float_rescale
from torq_byoc.relay_patterns.composites import activation, layer_norm, lrn, prelu
from torq_byoc.relay_patterns.legality import float_reasons, int_attr, quantized_reasons
from torq_byoc.relay_patterns.lowering import Lowering, ints
from torq_byoc.relay_patterns.matchers import any_of, dequantized, quantized
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, constant_value, op_name, shape_of, static_shape

_LARGEST = 2.0**100
"""Numbers in steps of codes, far from where fp32 ends."""


def _lrn_graph(read: Callable[[], DFPattern]) -> DFPattern:
    """What the importer makes of ONNX's LRN; ``read`` gives a pattern for every time that it reads x."""
    square = is_op("relax.reshape")(is_op("relax.multiply")(read(), read()), wildcard())
    mean = is_op("relax.reshape")(is_op("relax.nn.avg_pool2d")(square), wildcard())
    denominator = is_op("relax.add")(is_op("relax.multiply")(mean, is_const()), is_const())
    return is_op("relax.divide")(read(), is_op("relax.power")(denominator, is_const()))


def _quantized_lrn_graph() -> DFPattern:
    codes = wildcard()
    return quantized(_lrn_graph(lambda: dequantized(codes)))


def _float_lrn_graph() -> DFPattern:
    x = wildcard()
    return _lrn_graph(lambda: x)


def check_quantized_lrn(view: View) -> list[str]:
    """Data and result quantized per tensor; a window centred on the channel, padded by zeros that count."""
    data = view.require("divide").args[0]
    quant = view.operand(data).quant
    reasons = quantized_reasons(view, data) + _window_reasons(view)
    return reasons or lrn.refusals(_lrn(view), quant.params() if quant else None)


def check_lrn(view: View) -> list[str]:
    """All float32; a window centred on the channel, padded by zeros that count."""
    return float_reasons(view) + _window_reasons(view) + lrn.refusals(_lrn(view), None)


def _window_reasons(view: View) -> list[str]:
    pool = view.require("nn.avg_pool2d")
    size, pads = ints(pool.attrs.pool_size)[0], ints(pool.attrs.padding)
    centred = pads == ((size - 1) // 2, 0, size - 1 - (size - 1) // 2, 0)
    return [] if centred and int_attr(pool.attrs.count_include_pad) else ["its window is not that of an LRN"]


def lower_lrn(low: Lowering) -> str:
    """The composite."""
    x = low.tensor(low.view.require("divide").args[0])
    return lrn.lower(low.builder, x, _lrn(low.view), low.out, low.origin)


def _lrn(view: View) -> lrn.Lrn:
    pool, scaled = view.require("nn.avg_pool2d"), view.require("add")
    alpha = _number(view.resolve(scaled.args[0]).args[1])
    size = ints(pool.attrs.pool_size)[0]
    return lrn.Lrn(size, alpha, _number(view.require("power").args[1]), _number(scaled.args[1]))


def _number(expr: object) -> float:
    value = constant_value(expr)  # type: ignore[arg-type]
    assert value is not None, "a constant of the pattern"
    return float(value.reshape(-1)[0])


def check_prelu_quantized(view: View) -> list[str]:
    """Data and result quantized per tensor; constant slopes."""
    call = view.require("nn.prelu")
    return _slope_reasons(view) + quantized_reasons(view, call.args[0])


def check_prelu_float(view: View) -> list[str]:
    """All float32; constant slopes."""
    return _slope_reasons(view) + float_reasons(view)


def _slope_reasons(view: View) -> list[str]:
    slopes = view.operand(view.require("nn.prelu").args[1])
    return ["its slopes are not constant"] if slopes.constant is None else []


def _written_out_graph() -> DFPattern:
    """relu(x) + slopes * min(x, 0), each reader of x with a dequantize of its own."""
    codes = wildcard()
    slopes = any_of(dequantized(is_const()), is_const())
    below = is_op("relax.minimum")(dequantized(codes), is_const())
    product = is_op("relax.multiply")(slopes, below)
    return quantized(is_op("relax.add")(is_op("relax.nn.relu")(dequantized(codes)), product))


def check_written_out(view: View) -> list[str]:
    """Data and result quantized per tensor; constant slopes; the minimum is taken with 0."""
    minimum, product = view.require("minimum"), view.require("multiply")
    reasons = quantized_reasons(view, minimum.args[0], view.require("nn.relu").args[0])
    if _number(minimum.args[1]) != 0.0:
        reasons.append("it is no PRelu: its branches do not meet at 0")
    if view.operand(product.args[0]).constant is None:
        reasons.append("its slopes are not constant")
    return reasons


def lower_written_out(low: Lowering) -> str:
    """The composite."""
    slopes = low.view.operand(low.view.require("multiply").args[0]).real()
    x = low.tensor(low.view.require("minimum").args[0])
    return prelu.lower(low.builder, x, slopes, low.out, low.origin)


def lower_prelu(low: Lowering) -> str:
    """The composite, with the slopes along their axis."""
    call = low.view.require("nn.prelu")
    shape = [1] * len(low.shape)
    shape[int_attr(call.attrs.axis) % len(shape)] = -1
    slopes = low.view.operand(call.args[1]).real().reshape(shape)
    return prelu.lower(low.builder, low.tensor(call.args[0]), slopes, low.out, low.origin)


def _quantized_norm_graph() -> DFPattern:
    gains, offsets = (any_of(dequantized(is_const()), is_const()) for _ in range(2))
    return quantized(is_op("relax.nn.layer_norm")(dequantized(), gains, offsets))


def check_quantized_norm(view: View) -> list[str]:
    """Data and result quantized per tensor to 8 bits; rows of the last axes; gains and offsets constant and finite."""
    call = view.require("nn.layer_norm")
    data, out, rank = view.operand(call.args[0]).quant, view.output(), len(static_shape(call.args[0]))
    reasons = quantized_reasons(view, call.args[0])
    parameters = [view.operand(argument).real() for argument in call.args[1:]]
    if out and any(not np.all(np.abs(values) < _LARGEST * out.scale.min()) for values in parameters):
        reasons.append("its gains or offsets are not finite, or beyond fp32 in steps of its result")
    if data and not layer_norm.epsilon_in_steps(float(call.attrs.epsilon), data.scale.min(), 1) < _LARGEST:
        reasons.append("its epsilon is beyond fp32 in steps of its data")
    if any(quant and quant.dtype == "int16" for quant in (data, out)):
        reasons.append("it has codes of 16 bits, and statistics are taken in bf16")
    if _axes(call) != tuple(range(rank - len(_axes(call)), rank)):
        reasons.append("it does not normalise rows of the last axes")
    return reasons


def lower_quantized_norm(low: Lowering) -> str:
    """The composite."""
    call = low.view.require("nn.layer_norm")
    gains, offsets = (low.view.operand(argument).real() for argument in call.args[1:])
    norm = layer_norm.Norm(len(_axes(call)), gains, offsets, float(call.attrs.epsilon))
    return layer_norm.lower(low.builder, low.tensor(call.args[0]), norm, low.out, low.origin)


def _norm_graph() -> DFPattern:
    return any_of(
        is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard()),
        is_op("relax.nn.rms_norm")(wildcard(), wildcard()),
    )


def check_norm(view: View) -> list[str]:
    """All float32; gains and offsets constant."""
    arguments = view.root.args[1:]
    constant = all(constant_value(argument) is not None for argument in arguments)
    return float_reasons(view) + ([] if constant else ["its gains are not constant"])


def lower_norm(low: Lowering) -> str:
    """Mean and variance by two reductions, then one root a row.

    A bf16 mean is off by up to 2^-9 of itself, which a large common offset makes large against the spread;
    the mean of the differences is therefore subtracted as well.
    """
    call = low.view.root
    x, axes = low.tensor(call.args[0]), _axes(call)
    if op_name(call) == "relax.nn.layer_norm":
        x = _without_mean(low, _without_mean(low, x, axes), axes)
    inverse = activation.lower(
        low.builder, _mean_square(low, x, axes, float(call.attrs.epsilon)), "rsqrt", None, low.origin
    )
    result = low.emitter.mul(x, inverse, DType.BF16)
    gains = constant_value(call.args[1])
    if gains is not None and not np.all(gains == 1.0):
        result = low.emitter.mul(result, low.constant(gains), DType.BF16)
    offsets = constant_value(call.args[2]) if len(call.args) > 2 else None
    if offsets is not None and np.any(offsets):
        result = low.emitter.sum2(result, low.constant(offsets), (1.0, 1.0), DType.BF16)
    return result


def _axes(call: Call) -> tuple[int, ...]:
    rank = len(static_shape(call.args[0]))
    return tuple(sorted(axis % rank for axis in ints(call.attrs.axes)))


def _mean(low: Lowering, x: str, axes: tuple[int, ...], offset: float = 0.0) -> str:
    """Mean over axes (kept with extent 1), plus a constant."""
    shape = low.builder.info(x).shape
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    attrs = {"kind": "sum", "axes": axes, "keepdims": True}
    total = low.emit("reduce", [x], kept, DType.BF16, attrs=attrs, rescale=float_rescale())
    count = math.prod(shape[axis] for axis in axes)
    return affine.lower_float(low, total, Affine(1.0 / count, offset))


def _without_mean(low: Lowering, x: str, axes: tuple[int, ...]) -> str:
    return low.emitter.sum2(x, _mean(low, x, axes), (1.0, -1.0), DType.BF16)


def _mean_square(low: Lowering, x: str, axes: tuple[int, ...], epsilon: float = 0.0) -> str:
    return _mean(low, low.emitter.mul(x, x, DType.BF16), axes, epsilon)


def check_variance(view: View) -> list[str]:
    """All float32; axes named."""
    return float_reasons(view) + ([] if view.root.attrs.axis is not None else ["it names no axes"])


def lower_variance(low: Lowering) -> str:
    """The mean square of the differences from the mean."""
    call = low.view.root
    rank = len(static_shape(call.args[0]))
    axes = tuple(sorted(axis % rank for axis in ints(call.attrs.axis)))
    x = low.tensor(call.args[0])
    result = _mean_square(low, _without_mean(low, _without_mean(low, x, axes), axes), axes)
    return low.reshaped(result, shape_of(call) or ())


PATTERNS = (
    Pattern("torq.prelu.written_out", "quantized", _written_out_graph, check_written_out, lower_written_out),
    Pattern("torq.lrn", "quantized", _quantized_lrn_graph, check_quantized_lrn, lower_lrn),
    Pattern("torq.bf16.lrn", "bf16", _float_lrn_graph, check_lrn, lower_lrn),
    Pattern(
        "torq.prelu",
        "quantized",
        lambda: quantized(is_op("relax.nn.prelu")(dequantized(), any_of(dequantized(is_const()), is_const()))),
        check_prelu_quantized,
        lower_prelu,
    ),
    Pattern(
        "torq.bf16.prelu",
        "bf16",
        lambda: is_op("relax.nn.prelu")(wildcard(), is_const()),
        check_prelu_float,
        lower_prelu,
    ),
    Pattern("torq.layer_norm", "quantized", _quantized_norm_graph, check_quantized_norm, lower_quantized_norm),
    Pattern("torq.bf16.norm", "bf16", _norm_graph, check_norm, lower_norm),
    Pattern("torq.bf16.variance", "bf16", lambda: is_op("relax.variance")(wildcard()), check_variance, lower_variance),
)
