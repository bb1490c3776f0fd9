"""QuantizeLinear and DequantizeLinear -> ``quantize`` / ``dequantize`` with the same constants, always in one form.

Scale and zero point are either both scalars (one value for the tensor) or both vectors along ``axis``.
A missing zero point becomes zeros.
"""

from __future__ import annotations

import numpy as np
import tvm
from onnx import helper
from tvm import relax

from torq_byoc.frontend.converters.support import Converter, OnnxCall, dtype_of, static_shape
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
    scale, zero, axis = _parameters(call, dtype)
    return relax.op.quantize(x, scale, zero, axis=axis, out_dtype=dtype)


def dequantize(call: OnnxCall) -> relax.Expr:
    """DequantizeLinear -> ``dequantize`` to the scale's type; int32 inputs (biases) are allowed."""
    x = call.data()
    dtype = dtype_of(x)
    scale, zero, axis = _parameters(call, dtype, (*_INTEGER, "int32"))
    return relax.op.dequantize(x, scale, zero, axis=axis, out_dtype=dtype_of(call.data(1)))


def _parameters(call: OnnxCall, dtype: str, allowed: tuple[str, ...] = _INTEGER) -> tuple[relax.Expr, relax.Expr, int]:
    if dtype not in allowed or int(call.attrs.get("block_size", 0)):
        raise call.unsupported(
            f"its integer type is {dtype}; only {', '.join(allowed)}, without blocks, can be compiled"
        )
    shape = static_shape(call.data(), call)
    scale, zero = call.data(1), call.input(2)
    if not isinstance(scale, tvm.ir.GenericConst) or not (zero is None or isinstance(zero, tvm.ir.GenericConst)):
        raise call.unsupported("its scale or zero point is computed at run time")
    scales = scale.value.numpy()
    zeros = np.zeros(scales.shape, dtype) if zero is None else zero.value.numpy()
    if scales.size == 1:
        return relax.const(scales.reshape(())), relax.const(zeros.reshape(-1)[:1].reshape(())), 0
    axis = normalize_axis(int(call.attrs.get("axis", 1)), len(shape), call.name) if len(shape) > 1 else 0
    return relax.const(scales), relax.const(np.broadcast_to(zeros, scales.shape).copy()), axis


CONVERTERS: dict[str, Converter] = {"QuantizeLinear": quantize, "DequantizeLinear": dequantize}
