"""Two-operand element-wise operators: add, subtract, multiply, maximum, minimum, with a relu or clip behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, wildcard

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.arithmetic import float_rescale, requantization, weight_pair, wide_sum
from torq_byoc.relay_patterns.legality import activation_reasons, float_reasons, output_reasons
from torq_byoc.relay_patterns.lowering import Lowering, quant_of
from torq_byoc.relay_patterns.matchers import activated, any_of, dequantized, one_of, parameter, quantized
from torq_byoc.relay_patterns.quant_params import QuantParams
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import Operand, View, op_name, static_shape

_SUMS = ("relax.add", "relax.subtract")
_PRODUCTS = ("relax.multiply",)
_EXTREMES = ("relax.maximum", "relax.minimum")
_ALL = (*_SUMS, *_PRODUCTS, *_EXTREMES)
_RATIO_TOLERANCE = 2.0**-20
"""Output codes by which 8-bit weights of a sum may move a result; finer ratios take 16-bit weights.

It is this small because one moved code in an early layer moves half the codes of a deep network's later ones."""


def _quantized_graph(names: tuple[str, ...]) -> DFPattern:
    operand = any_of(dequantized(), parameter())
    return quantized(activated(one_of(names, operand, any_of(dequantized(), parameter()))))


def _operands(view: View) -> tuple[Call, Operand, Operand]:
    call = view.require(*_ALL)
    return call, view.operand(call.args[0]), view.operand(call.args[1])


def check_quantized(view: View) -> list[str]:
    """At least one operand is an activation quantized per tensor; the other may be any constant."""
    _, left, right = _operands(view)
    reasons = output_reasons(view.output())
    if left.constant is not None and right.constant is not None:
        reasons.append("both operands are constant")
    for label, operand in (("its left operand", left), ("its right operand", right)):
        if operand.constant is None:
            reasons += activation_reasons(operand, label)
    return reasons


def check_float(view: View) -> list[str]:
    """All float32; no scalar constant operand (that is an affine map) and not two constant ones."""
    _, left, right = _operands(view)
    constants = [operand.constant for operand in (left, right) if operand.constant is not None]
    reasons = ["both operands are constant"] if len(constants) == 2 else []
    if any(constant.size == 1 for constant in constants) and left.shape != right.shape:
        reasons.append("it is an affine map of one tensor")
    return reasons + float_reasons(view)


def _coded(low: Lowering, operand: Operand, expr: object) -> tuple[str, QuantParams]:
    """An operand's tensor and quantization; constants without a usable one become symmetric int16 codes."""
    if operand.constant is None:
        return low.tensor(expr), quant_of(operand)
    quant = operand.quant
    if quant is not None and quant.per_tensor and quant.dtype in ("int8", "uint8", "int16"):
        return low.tensor(expr), quant.params()
    return _constant_codes(low, operand.real())


def _constant_codes(low: Lowering, real: np.ndarray) -> tuple[str, QuantParams]:
    largest = float(np.abs(real).max()) or 1.0
    params = QuantParams(largest / 32767, 0, DType.INT16)
    return low.constant(params.quantize(real)), params


def _both(low: Lowering) -> tuple[Call, tuple[str, QuantParams], tuple[str, QuantParams]]:
    call, left, right = _operands(low.view)
    return call, _coded(low, left, call.args[0]), _coded(low, right, call.args[1])


def _alike(low: Lowering, tensor: str, params: QuantParams, dtype: DType) -> tuple[str, QuantParams]:
    """The same values as codes of another type that holds them all."""
    if params.dtype is dtype:
        return tensor, params
    shift = 128 if (params.dtype, dtype) == (DType.UINT8, DType.INT8) else 0
    moved = QuantParams(params.scale, params.zero_point - shift, dtype)
    value = low.builder.value(tensor)
    if value is not None:
        return low.constant((value.astype(np.int32) - shift).astype(dtype.numpy)), moved
    rescale = requantization(1.0, -shift, QuantParams(1.0, 0, dtype))
    return low.emit("act", [tensor], low.builder.info(tensor).shape, moved, rescale=rescale), moved


def _common_type(a: DType, b: DType) -> DType:
    if a is b:
        return a
    return DType.INT8 if {a, b} == {DType.INT8, DType.UINT8} else DType.INT16


def lower_sum(low: Lowering) -> str:
    """sum2: integer weights in the ratio of the scales, zero points in the bias."""
    call, (a, qa), (b, qb) = _both(low)
    out, shape = low.out, static_shape(call)
    assert out is not None
    dtype = _common_type(qa.dtype, qb.dtype)
    (a, qa), (b, qb) = _alike(low, a, qa, dtype), _alike(low, b, qb, dtype)
    weights, unit = _sum_weights(qa, qb, out, subtract=op_name(call) == "relax.subtract")
    bias = -weights[0] * qa.zero_point - weights[1] * qb.zero_point
    rescale = requantization(unit / out.scale, bias, out, bounds=low.bounds(), wide=wide_sum(dtype))
    return low.emit("sum2", [a, b], shape, out, attrs={"weights": weights}, rescale=rescale)


def _sum_weights(qa: QuantParams, qb: QuantParams, out: QuantParams, subtract: bool) -> tuple[tuple[int, int], float]:
    """Weights and their unit; 8 bits wide when that is exact enough, which doubles the ALU's rate."""
    sb = -qb.scale if subtract else qb.scale
    span = 1 << (8 * qa.dtype.size)
    for limit in (127, 16383):
        wa, wb, unit = weight_pair(qa.scale, sb, limit)
        error = max(abs(wa * unit - qa.scale), abs(wb * unit - sb)) * span / out.scale
        if error <= _RATIO_TOLERANCE:
            break
    return (wa, wb), unit


def lower_product(low: Lowering) -> str:
    """mul; one operand may keep its zero point, the other's has been removed."""
    call, *operands = _both(low)
    out, shape = low.out, static_shape(call)
    assert out is not None
    kept = _keeps_zero_point(low, operands, shape)
    if kept is not None:
        operands.insert(0, operands.pop(kept))
    (a, qa), (b, qb) = (
        operand if kept is not None and position == 0 else _centered(low, *operand)
        for position, operand in enumerate(operands)
    )
    wide = wide_sum(qa.dtype, qb.dtype)
    rescale = requantization(qa.scale * qb.scale / out.scale, 0, out, bounds=low.bounds(), wide=wide)
    attrs = None if kept is None else {"zero_point": qa.zero_point}
    return low.emit("mul", [a, b], shape, out, attrs=attrs, rescale=rescale)


def _keeps_zero_point(low: Lowering, operands: Sequence[tuple[str, QuantParams]], shape: tuple[int, ...]) -> int | None:
    """Position of the operand whose zero point the product subtracts: of those that can, one that would have to be
    widened without, and the larger."""

    def gain(position: int) -> tuple[bool, int]:
        tensor, params = operands[position]
        return params.recoded() is None, math.prod(low.builder.info(tensor).shape)

    able = [
        position
        for position, (tensor, params) in enumerate(operands)
        if low.builder.value(tensor) is None and params.zero_point and low.builder.info(tensor).shape == shape
    ]
    return max(able, key=gain, default=None)


def _centered(low: Lowering, tensor: str, params: QuantParams) -> tuple[str, QuantParams]:
    """The operand without zero point, as narrow as its codes allow (constants: as their values do)."""
    value = low.builder.value(tensor)
    if params.zero_point == 0:
        return tensor, params
    if value is None:
        recoded = params.recoded()
        return low.centered(tensor, params) if recoded is None else (low.requantize(tensor, params, recoded), recoded)
    moved = value.astype(np.int32) - params.zero_point
    if np.abs(moved).max() > 32767:
        return _constant_codes(low, params.dequantize(value))
    dtype = DType.INT8 if moved.min() >= -128 and moved.max() <= 127 else DType.INT16
    return low.constant(moved.astype(dtype.numpy)), QuantParams(params.scale, 0, dtype)


def lower_extreme(low: Lowering) -> str:
    """maximum or minimum; operands of unlike quantization are first brought to the result's (exact: it is monotone)."""
    call, left, right = _operands(low.view)
    out, shape = low.out, static_shape(call)
    assert out is not None
    shared = out
    if left.quant is not None and right.quant is not None and quant_of(left) == quant_of(right):
        shared = quant_of(left)
    a, b = (_brought(low, operand, expr, shared) for operand, expr in zip((left, right), call.args, strict=True))
    rescale = requantization(shared.scale / out.scale, -shared.zero_point, out, bounds=low.bounds())
    return low.emit(op_name(call).removeprefix("relax."), [a, b], shape, out, rescale=rescale)


def _brought(low: Lowering, operand: Operand, expr: object, params: QuantParams) -> str:
    if operand.constant is not None:
        return low.constant(params.quantize(operand.real()))
    return low.requantize(low.tensor(expr), quant_of(operand), params)


def lower_float(low: Lowering) -> str:
    """sum2 with weights 1 and +-1, mul, maximum or minimum in bf16."""
    call, _, _ = _operands(low.view)
    a, b = (low.tensor(argument) for argument in call.args)
    rescale, shape = float_rescale(bounds=low.bounds()), static_shape(call)
    name = op_name(call)
    if name in _SUMS:
        weights = (1.0, -1.0 if name == "relax.subtract" else 1.0)
        return low.emit("sum2", [a, b], shape, DType.BF16, attrs={"weights": weights}, rescale=rescale)
    op = "mul" if name in _PRODUCTS else name.removeprefix("relax.")
    return low.emit(op, [a, b], shape, DType.BF16, rescale=rescale)


def _float_graph() -> DFPattern:
    return activated(one_of(_ALL, wildcard(), wildcard()))


PATTERNS = (
    Pattern("torq.sum", "quantized", lambda: _quantized_graph(_SUMS), check_quantized, lower_sum),
    Pattern("torq.product", "quantized", lambda: _quantized_graph(_PRODUCTS), check_quantized, lower_product),
    Pattern("torq.extreme", "quantized", lambda: _quantized_graph(_EXTREMES), check_quantized, lower_extreme),
    Pattern("torq.bf16.binary", "bf16", _float_graph, check_float, lower_float),
)
