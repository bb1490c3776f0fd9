"""Division, remainders, shifts and tests, with the values that ONNX defines where machine instructions have none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from torq_byoc.frontend.converters.support import Converter, OnnxCall, constant, constant_array, dtype_of, static_shape

Binary = Callable[[relax.Expr, relax.Expr], relax.Expr]


def divide(call: OnnxCall) -> relax.Expr:
    """Div -> ``divide``; integers round towards zero, and a divisor from run time never traps (0 gives 0)."""
    x, divisor = call.data(0), call.data(1)
    if not _is_float(x):
        return _guarded(x, divisor, relax.op.divide, relax.op.negative(x))
    value = constant_array(divisor)
    if value is None or value.size != 1 or value.any():
        return relax.op.divide(x, divisor)
    # TVM takes a scalar zero for an error; as a tensor it divides to infinities and NaN.
    rank = len(static_shape(x, call))
    zero = constant(value.reshape((1,) * max(rank, value.ndim, 1)))
    if rank or value.ndim:
        return relax.op.divide(x, zero)
    return relax.op.reshape(relax.op.divide(relax.op.reshape(x, (1,)), zero), ())


def modulo(call: OnnxCall) -> relax.Expr:
    """Mod -> ``floor_mod``, with fmod=1 ``mod``; zero and infinite divisors as ONNX defines them."""
    x, divisor = call.data(0), call.data(1)
    truncated = bool(call.attrs.get("fmod", 0))
    op = relax.op.mod if truncated else relax.op.floor_mod
    if not _is_float(x):
        return _guarded(x, divisor, op, relax.const(0, dtype_of(x)))
    dtype = dtype_of(x)
    value = constant_array(divisor)
    if value is not None and value.size == 1 and not value.any():
        return relax.op.multiply(x, constant(np.full(value.shape, np.nan, value.dtype)))
    zero = relax.const(0, dtype)
    inside = relax.op.logical_and(relax.op.isfinite(x), relax.op.isinf(divisor))
    whole = x
    if not truncated:
        same_sign = relax.op.greater_equal(relax.op.multiply(x, relax.op.sign(divisor)), zero)
        whole = relax.op.where(same_sign, x, divisor)
    return relax.op.where(inside, whole, op(x, divisor))


def _guarded(x: relax.Expr, divisor: relax.Expr, op: Binary, by_minus_one: relax.Expr) -> relax.Expr:
    """An integer division that no operand can trap: the processor has no answer to x / 0 and to minimum / -1."""
    value = constant_array(divisor)
    if value is not None and not np.isin(value, (0, -1)).any():
        return op(x, divisor)
    dtype = dtype_of(x)
    is_zero = relax.op.equal(divisor, relax.const(0, dtype))
    unsafe = is_zero
    if dtype.startswith("int"):
        is_minus_one = relax.op.equal(divisor, relax.const(-1, dtype))
        unsafe = relax.op.logical_or(is_zero, is_minus_one)
    result = op(x, relax.op.where(unsafe, relax.const(1, dtype), divisor))
    if dtype.startswith("int"):
        result = relax.op.where(is_minus_one, by_minus_one, result)
    return relax.op.where(is_zero, relax.const(0, dtype), result)


def bit_shift(call: OnnxCall) -> relax.Expr:
    """BitShift -> ``left_shift`` or ``right_shift``; a shift outside the type leaves only copies of the sign."""
    x, count = call.data(0), call.data(1)
    dtype = dtype_of(x)
    bits = np.iinfo(dtype).bits
    last = relax.const(bits - 1, dtype)
    inside = relax.op.less_equal(count, last)
    if dtype.startswith("int"):
        inside = relax.op.logical_and(inside, relax.op.greater_equal(count, relax.const(0, dtype)))
    safe = relax.op.where(inside, count, last)
    zero = relax.const(0, dtype)
    if call.text("direction", "LEFT") == "LEFT":
        return relax.op.where(inside, relax.op.left_shift(x, safe), zero)
    shifted = relax.op.right_shift(x, safe)
    return shifted if dtype.startswith("int") else relax.op.where(inside, shifted, zero)


def is_infinite(call: OnnxCall) -> relax.Expr:
    """IsInf -> ``isinf``, and a comparison with 0 where only one sign counts."""
    x = call.data()
    positive, negative = (bool(call.attrs.get(f"detect_{sign}", 1)) for sign in ("positive", "negative"))
    found = relax.op.isinf(x)
    if positive and negative:
        return found
    zero = relax.const(0, dtype_of(x))
    if not positive and not negative:
        return relax.op.logical_and(found, relax.const(False, "bool"))
    compared = relax.op.greater(x, zero) if positive else relax.op.less(x, zero)
    return relax.op.logical_and(found, compared)


def _is_float(x: relax.Expr) -> bool:
    return "float" in dtype_of(x)


CONVERTERS: dict[str, Converter] = {"Div": divide, "Mod": modulo, "BitShift": bit_shift, "IsInf": is_infinite}
