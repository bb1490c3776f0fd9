"""QuantizeLinear and DequantizeLinear -> ``quantize`` / ``dequantize`` with the same constants, always in one form.

Scale and zero point are either both scalars (one value for the tensor) or both vectors along ``axis``.
A missing zero point becomes zeros.  Where they are computed at run time the formulas are written out, for the CPU.
"""

from __future__ import annotations

import math

import numpy as np
import tvm
from onnx import helper
from tvm import relax

from torq_byoc.frontend.converters.support import (
    Converter,
    OnnxCall,
    check_parameter,
    constant,
    dtype_of,
    static_shape,
)
from torq_byoc.frontend.geometry import normalize_axis

_INTEGER = ("int8", "uint8", "int16", "uint16")


def quantize(call: OnnxCall) -> relax.Expr:
    """QuantizeLinear -> ``quantize``: round half to even, saturate to int8, uint8, int16 or uint16."""
    x = call.data()
    declared = int(call.attrs.get("output_dtype", 0))
    dtype = str(helper.tensor_dtype_to_np_dtype(declared)) if declared else "uint8"
    zero_point = call.input(2)
    if zero_point is not None:
        dtype = dtype_of(zero_point)
    _check_form(call, dtype, _INTEGER)
    if not _is_fixed(call):
        return _quantize_at_run_time(call, dtype)
    scale, zero, axis = _parameters(call, dtype)
    return relax.op.quantize(x, scale, zero, axis=axis, out_dtype=dtype)


def _quantize_at_run_time(call: OnnxCall, dtype: str) -> relax.Expr:
    """``astype(clip(add(round(divide(x, scale)), zero), low, high))``."""
    x, limits = call.data(), np.iinfo(dtype)
    scale, zero = _spread(call, 1), _spread(call, 2)
    rounded = relax.op.round(relax.op.divide(x, relax.op.astype(scale, dtype_of(x))))
    if zero is not None:
        rounded = relax.op.add(rounded, relax.op.astype(zero, dtype_of(x)))
    low, high = (relax.prim_value(float(n)) for n in (limits.min, limits.max))
    return relax.op.astype(relax.op.clip(rounded, low, high), dtype)


def dequantize(call: OnnxCall) -> relax.Expr:
    """DequantizeLinear -> ``dequantize``, to the scale's type unless it names another; int32 (biases) is allowed."""
    x = call.data()
    dtype = dtype_of(x)
    _check_form(call, dtype, (*_INTEGER, "int32"))
    named, made = int(call.attrs.get("output_dtype", 0)), dtype_of(call.data(1))
    result = str(helper.tensor_dtype_to_np_dtype(named)) if named else made
    if not _is_fixed(call):
        return relax.op.astype(_dequantize_at_run_time(call), result)
    scale, zero, axis = _parameters(call, dtype)
    return relax.op.dequantize(x, scale, zero, axis=axis, out_dtype=result)


def _dequantize_at_run_time(call: OnnxCall) -> relax.Expr:
    """``multiply(subtract(astype(x), zero), scale)``; the difference is taken in int32, where it is exact."""
    difference = relax.op.astype(call.data(), "int32")
    zero = _spread(call, 2)
    if zero is not None:
        difference = relax.op.subtract(difference, relax.op.astype(zero, "int32"))
    return relax.op.multiply(relax.op.astype(difference, dtype_of(call.data(1))), _spread(call, 1))


def _check_form(call: OnnxCall, dtype: str, allowed: tuple[str, ...]) -> None:
    if dtype not in allowed or int(call.attrs.get("block_size", 0)):
        raise call.unsupported(
            f"its integer type is {dtype}; only {', '.join(allowed)}, without blocks, can be compiled"
        )


def _is_fixed(call: OnnxCall) -> bool:
    """Whether scale and zero point are constants."""
    return all(value is None or isinstance(value, tvm.ir.GenericConst) for value in (call.data(1), call.input(2)))


def _spread(call: OnnxCall, index: int) -> relax.Expr | None:
    """A parameter in a shape that broadcasts along the node's axis; None when it is left out."""
    value, rank = call.input(index), len(static_shape(call.data(), call))
    if value is None:
        return None
    shape = static_shape(value, call)
    if math.prod(shape) == 1:
        return relax.op.reshape(value, (1,) * rank)
    axis = normalize_axis(int(call.attrs.get("axis", 1)), rank, call.name) if rank > 1 else 0
    spread = (math.prod(shape),) + (1,) * (rank - 1 - axis)
    check_parameter(call, "zero point" if index == 2 else "scale", spread, static_shape(call.data(), call))
    return relax.op.reshape(value, spread)


def _parameters(call: OnnxCall, dtype: str) -> tuple[relax.Expr, relax.Expr, int]:
    shape = static_shape(call.data(), call)
    scale, zero = call.data(1), call.input(2)
    scales = scale.value.numpy()
    zeros = np.zeros(scales.shape, dtype) if zero is None else zero.value.numpy()
    if scales.size == 1:
        return constant(scales.reshape(())), constant(zeros.reshape(-1)[:1].reshape(())), 0
    axis = normalize_axis(int(call.attrs.get("axis", 1)), len(shape), call.name) if len(shape) > 1 else 0
    return constant(scales), constant(np.broadcast_to(zeros, scales.shape)), axis


CONVERTERS: dict[str, Converter] = {"QuantizeLinear": quantize, "DequantizeLinear": dequantize}
