"""The arithmetic of ALU results and of the ACT unit (hardware doc, section 3), defined once.

The whole-tensor reference of every kernel, the quantizer and both simulators call these functions, so a
compiled program can equal its reference to the last bit.  All functions take and return numpy arrays,
broadcast like numpy, and touch no memory of their arguments.

Integer results are exact.  An accumulator is a two's complement number of ``sum_bits`` bits: sums wrap, which
makes them independent of the order of accumulation.  Everything after it is exact: bias, product with the
scale (up to 81 bits), rounding shift, zero point; only then come clip and saturation to the output type.

Float results: products of bf16 operands are accumulated in float64, rounded once to fp32, and ACT works in
fp32; bf16 outputs are rounded to nearest, ties to even.  Every NaN that leaves ACT is the canonical quiet NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from torq_byoc.errors import InternalError, QuantizationError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, ActMode, Rounding

MAX_SHIFT = 63
"""Largest shift of ACT (a six-bit register)."""

_LOW_WORD = np.int64(0xFFFFFFFF)
_EXACT_PRODUCT = 1 << 62
_FLOAT_MODES = frozenset({ActMode.ACT, ActMode.ABS, ActMode.NEG, ActMode.CEL, ActMode.FLR, ActMode.F2I})
_FLOAT_FUNCTIONS = {ActMode.ABS: np.abs, ActMode.NEG: np.negative, ActMode.CEL: np.ceil, ActMode.FLR: np.floor}
_INTEGER_MODES = frozenset(ActMode) - {ActMode.CEL, ActMode.FLR, ActMode.F2I}


def wrap(values: np.ndarray, sum_bits: int) -> np.ndarray:
    """Two's complement numbers of ``sum_bits`` (1..64) bits: the low bits of integers, sign-extended.

    Returns:
        A new int64 array.
    """
    source = np.asarray(values)
    wrapped = np.array(source, np.int64)
    if sum_bits < source.dtype.itemsize * 8 + (source.dtype.kind == "u"):
        wrapped <<= 64 - sum_bits
        wrapped >>= 64 - sum_bits
    return wrapped


def clip_bounds(clip_min: float, clip_max: float, out: DType) -> tuple[int, int]:
    """Integer bounds of an output: the clip bounds within the range of the type."""
    low, high = out.integer_range
    low = low if clip_min == -math.inf else max(low, math.ceil(clip_min))
    high = high if clip_max == math.inf else min(high, math.floor(clip_max))
    return low, high


def saturate(values: np.ndarray, out: DType, clip_min: float = -math.inf, clip_max: float = math.inf) -> np.ndarray:
    """Clip int64 values to the bounds and to the range of an integer type; returns that type."""
    low, high = clip_bounds(clip_min, clip_max, out)
    return np.asarray(np.clip(values, low, high)).astype(out.numpy)


def _update(operation: np.ufunc, values: np.ndarray, other: np.ndarray | float) -> np.ndarray:
    """``operation(values, other)``, in the memory of ``values`` where the result has their shape."""
    other = np.asarray(other, values.dtype)
    if np.broadcast_shapes(values.shape, other.shape) != values.shape:
        return operation(values, other)
    return operation(values, other, out=values)


def _settled(values: np.ndarray, act: ActConfig, out: DType) -> np.ndarray:
    """Zero point, clip and narrowing: the end of every integer mode; overwrites ``values``."""
    low, high = clip_bounds(act.clip_min, act.clip_max, out)
    values = np.asarray(values)
    if act.zero_point:
        values += act.zero_point
    return np.minimum(np.maximum(values, low, out=values), high, out=values).astype(out.numpy)


def rescale(
    acc: np.ndarray,
    bias: np.ndarray | int = 0,
    scale: np.ndarray | int | None = None,
    shift: int = 0,
    rounding: Rounding = Rounding.NTP,
    zero_point: int = 0,
    clip_min: float = -math.inf,
    clip_max: float = math.inf,
    out: DType = DType.INT8,
    sum_bits: int = 32,
) -> np.ndarray:
    """What ACT makes of an integer accumulator: bias, scale, rounding shift, zero point, clip, narrow.

    Args:
        acc: int64 sums; wrapped to ``sum_bits`` first.
        bias, scale: int32 numbers that broadcast against ``acc``; scale None is 1.
        shift: 0..63.
        zero_point: added after the shift.
        clip_min, clip_max: bounds in the output type; infinite for the type's own range.
        out: an integer type.

    Returns:
        Array of ``out.numpy`` with the broadcast shape.
    """
    act = ActConfig(ActMode.ACT, shift, rounding, zero_point, clip_min, clip_max, sum_bits)
    return _act_on_integer(acc, act, bias, scale, out, None)


def _scaled(total: np.ndarray, scale: np.ndarray | int | None, act: ActConfig) -> np.ndarray:
    """``total * scale``, shifted right with rounding; overwrites ``total``.

    Exact for totals up to 49 bits and scales up to 32; results beyond 62 bits are held at that bound, far
    outside every output type.
    """
    if scale is None and act.shift == 0:
        return total
    factor = np.asarray(1 if scale is None else scale, np.int64)
    if _magnitude(total) * _magnitude(factor) + (1 << act.shift) > _EXACT_PRODUCT:
        return _shift_wide(total, factor, act.shift, act.rounding)
    addend = _addend(total, act.shift, act.rounding)
    product = total if scale is None else _update(np.multiply, total, factor)
    if act.shift == 0:
        return product
    if act.rounding is Rounding.NTE:
        addend = (product >> act.shift) & 1
        addend += (1 << (act.shift - 1)) - 1
    product = _update(np.add, product, addend)
    product >>= act.shift
    return product


def _magnitude(values: np.ndarray) -> int:
    """An upper bound of the absolute values, as a Python int."""
    values = np.asarray(values)
    if values.size == 0:
        return 0
    return max(abs(int(values.min())), abs(int(values.max())))


def _addend(total: np.ndarray, shift: int, rounding: Rounding) -> np.ndarray | int:
    """What is added before the shift; for ties to even, half a unit without regard to the tie.

    TOSA's double rounding adds 2^30 more, away from zero, for shifts beyond 31.
    """
    if shift == 0 or rounding is Rounding.OFF:
        return 0
    half = 1 << (shift - 1)
    if rounding is Rounding.DBL and shift > 31:
        return np.where(total >= 0, half + (1 << 30), half - (1 << 30))
    return half


def _shift_wide(total: np.ndarray, factor: np.ndarray, shift: int, rounding: Rounding) -> np.ndarray:
    """The same for products beyond int64, held as high * 2^32 + low with 0 <= low < 2^32."""
    partial = (total & _LOW_WORD) * factor
    high = (total >> 32) * factor + (partial >> 32)
    low = partial & _LOW_WORD
    addend = np.asarray(_addend(total, shift, rounding), np.int64)
    if rounding is Rounding.NTE and shift:
        addend = addend - 1 + ((low >> shift if shift < 32 else high >> (shift - 32)) & 1)
    low = low + (addend & _LOW_WORD)
    high = high + (addend >> 32) + (low >> 32)
    low = low & _LOW_WORD
    if shift >= 32:
        return high >> (shift - 32)
    bound = 1 << (30 + shift)
    high = np.minimum(np.maximum(high, -bound), bound - 1)
    return (high << (32 - shift)) + (low >> shift)


def table_lookup(x: np.ndarray, table: np.ndarray | Sequence[tuple[int, int]]) -> np.ndarray:
    """Piecewise linear look-up of int16 numbers read as 9.7 fixed point (hardware doc 3.4).

    Args:
        x: int16 numbers in any integer type.
        table: int16[512, 2] of (base, slope).

    Returns:
        int32 array of base + ((slope * delta + 64) >> 7), with entry (x >> 7) + 256 and delta = x & 127.
    """
    entries = np.asarray(table, np.int16)
    x = np.asarray(x).astype(np.int32)
    index = (x >> 7) + 256
    base = entries[:, 0].astype(np.int32).take(index)
    slope = entries[:, 1].astype(np.int32).take(index)
    return base + ((slope * (x & 127) + 64) >> 7)


def round_bf16(x: np.ndarray) -> np.ndarray:
    """fp32 (or float64, rounded to fp32 first) to bfloat16, to nearest, ties to even; NaN is 0x7FC0."""
    with np.errstate(over="ignore"):
        single = np.asarray(x, np.float32)
    word = single.view(np.uint32)
    rounded = np.array(word)
    rounded >>= 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += word
    rounded >>= 16
    nan = np.isnan(single)
    if nan.any():
        rounded[nan] = 0x7FC0
    return rounded.astype(np.uint16).view(DType.BF16.numpy)


def round_to(x: np.ndarray, out: DType) -> np.ndarray:
    """Round float64 or fp32 numbers to a float type, to nearest, ties to even; NaN becomes the quiet NaN."""
    if out is DType.BF16:
        return round_bf16(x)
    with np.errstate(over="ignore"):
        single = np.asarray(x, np.float32)
    nan = np.isnan(single)
    return np.where(nan, np.float32(np.nan), single) if nan.any() else single


def act_float(
    acc: np.ndarray,
    bias: np.ndarray | float = 0.0,
    clip_min: float = -math.inf,
    clip_max: float = math.inf,
    out: DType = DType.BF16,
) -> np.ndarray:
    """What ACT makes of a float accumulator: fp32 sum, fp32 bias, clip, rounding to the output type.

    Args:
        acc: float64 or fp32 sums.
        bias: fp32 numbers that broadcast; adding 0 turns a negative zero into a positive one.
        out: BF16 or FP32.
    """
    return round_to(_clip_float(_biased_float(acc, bias), clip_min, clip_max), out)


def _biased_float(acc: np.ndarray, bias: np.ndarray | float) -> np.ndarray:
    """fp32 sum plus bias, as a new array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _update(np.add, np.array(acc, np.float32), bias)


def _clip_float(values: np.ndarray, clip_min: float, clip_max: float) -> np.ndarray:
    """Clip to fp32 bounds in place; a NaN stays."""
    if clip_min != -math.inf:
        np.maximum(values, np.float32(clip_min), out=values)
    if clip_max != math.inf:
        np.minimum(values, np.float32(clip_max), out=values)
    return values


def apply_act(
    acc: np.ndarray,
    act: ActConfig,
    bias: np.ndarray | float,
    scale: np.ndarray | int | None,
    out: DType,
    data_is_float: bool = False,
    table: np.ndarray | Sequence[tuple[int, int]] | None = None,
) -> np.ndarray:
    """The ACT unit: from accumulators to output elements, in every mode.

    Args:
        acc: int64 accumulators, or float64/fp32 ones when ``data_is_float``.
        act: mode and constants.
        bias: int32 numbers (fp32 for float accumulators) that broadcast against ``acc``; 0 for none.
        scale: int32 numbers that broadcast, or None for 1; the shift amounts in LSL, LSR and ASR, of which
            the low six bits count.
        out: output type; float for I2F and for float accumulators in all modes but F2I, integer otherwise.
        data_is_float: the accumulators are floats.  Comparisons, logical operations and arg-max of floats
            leave integers.
        table: int16[512, 2], required by TABLE.

    Returns:
        Array of ``out.numpy``.

    Raises:
        InternalError: the mode does not exist for this kind of accumulator or output.
    """
    mode = act.mode
    if mode not in (_FLOAT_MODES if data_is_float else _INTEGER_MODES):
        raise _no_such_mode(act, out, data_is_float)
    if out.is_float != (mode is ActMode.I2F or (data_is_float and mode is not ActMode.F2I)):
        raise _no_such_mode(act, out, data_is_float)
    if data_is_float:
        return _act_on_float(acc, act, bias, out)
    return _act_on_integer(acc, act, bias, scale, out, table)


def _no_such_mode(act: ActConfig, out: DType, data_is_float: bool) -> InternalError:
    kind = "float" if data_is_float else "integer"
    return InternalError(
        f"ACT mode {act.mode.name} cannot turn {kind} accumulators into {out.value}",
        why="integers become floats by I2F only, floats become integers by F2I only",
        remedy="report it with the model; the kernel of this operator is at fault",
    )


def _act_on_float(acc: np.ndarray, act: ActConfig, bias: np.ndarray | float, out: DType) -> np.ndarray:
    values = _biased_float(acc, bias)
    if act.mode is ActMode.F2I:
        return _settled(_to_integer(values, act.rounding), act, out)
    if act.mode in _FLOAT_FUNCTIONS:
        _FLOAT_FUNCTIONS[act.mode](values, out=values)
    return round_to(_clip_float(values, act.clip_min, act.clip_max), out)


def _to_integer(values: np.ndarray, rounding: Rounding) -> np.ndarray:
    """Floats to int64.  OFF truncates toward zero, DBL rounds like NTP (it differs in shifts only); NaN is 0."""
    wide = values.astype(np.float64)
    if rounding is Rounding.OFF:
        wide = np.trunc(wide)
    elif rounding is Rounding.NTE:
        wide = np.rint(wide)
    else:
        wide = np.floor(wide + 0.5)
    limit = float(1 << 40)
    return np.clip(np.where(np.isnan(wide), 0.0, wide), -limit, limit).astype(np.int64)


def _act_on_integer(
    acc: np.ndarray,
    act: ActConfig,
    bias: np.ndarray | float,
    scale: np.ndarray | int | None,
    out: DType,
    table: np.ndarray | Sequence[tuple[int, int]] | None,
) -> np.ndarray:
    mode = act.mode
    if mode in (ActMode.CLZ, ActMode.LSL, ActMode.LSR, ActMode.ASR):
        return _settled(_bit_operation(acc, act, scale), act, out)
    total = _update(np.add, wrap(acc, act.sum_bits), bias)
    if mode is ActMode.I2F:
        return round_to(_clip_float(total.astype(np.float32), act.clip_min, act.clip_max), out)
    if mode is ActMode.ABS:
        np.abs(total, out=total)
    elif mode is ActMode.NEG:
        np.negative(total, out=total)
    values = _scaled(total, scale, act)
    if mode is ActMode.TABLE:
        if table is None:
            raise InternalError(
                "a table look-up without a table",
                remedy="report it with the model; the kernel of this operator is at fault",
            )
        values = table_lookup(saturate(values, DType.INT16), table).astype(np.int64)
    return _settled(values, act, out)


def _bit_operation(acc: np.ndarray, act: ActConfig, scale: np.ndarray | int | None) -> np.ndarray:
    """CLZ and the variable shifts on the 32-bit accumulator; int64 array of 32-bit results."""
    value = wrap(acc, 32)
    if act.mode is ActMode.CLZ:
        # frexp gives the bit length of an exact float64; 0 has none.
        return 32 - np.frexp((value & _LOW_WORD).astype(np.float64))[1].astype(np.int64)
    amount = np.asarray(0 if scale is None else scale, np.int64) & MAX_SHIFT
    if act.mode is ActMode.LSL:
        return wrap(np.where(amount < 32, value << np.minimum(amount, 31), 0), 32)
    if act.mode is ActMode.LSR:
        return wrap((value & _LOW_WORD) >> amount, 32)
    half = np.where(amount > 0, np.int64(1) << np.maximum(amount - 1, 0), 0)
    if act.rounding is Rounding.OFF:
        return value >> amount
    if act.rounding is Rounding.NTE:
        odd = np.where(amount > 0, (value >> amount) & 1, 0)
        return (value + np.maximum(half - 1, 0) + odd) >> amount
    return (value + half) >> amount


def fixed_point(multipliers: np.ndarray, bits: int = 31) -> tuple[np.ndarray, int]:
    """Integer scales and the one shift that stand for real multipliers.

    Args:
        multipliers: finite real numbers, any shape; for ACT one a channel.
        bits: magnitude bits of a scale: 31 for ACT, 15 for int16 weights.

    Returns:
        (int32 scales = round(multipliers * 2^shift), the largest shift up to 63 with every |scale| < 2^bits).
        All zeros take shift 0.

    Raises:
        QuantizationError: a multiplier is not finite, or too large even without a shift.
    """
    values = np.asarray(multipliers, np.float64)
    largest = float(np.max(np.abs(values), initial=0.0))
    if not math.isfinite(largest):
        raise QuantizationError(
            "a rescale multiplier is not finite",
            why=f"multipliers are {values.ravel()[:4].tolist()}...",
            remedy="check the scales of the operator's inputs and output",
        )
    if largest == 0.0:
        return np.zeros(values.shape, np.int32), 0
    shift = min(MAX_SHIFT, bits - math.frexp(largest)[1])
    if np.rint(np.ldexp(largest, shift)) >= 2.0**bits:
        shift -= 1
    if shift < 0:
        raise QuantizationError(
            "a rescale multiplier is too large for the ACT unit",
            why=f"{largest:g} against a limit of 2^{bits}",
            remedy="check the scales of the operator's inputs and output: they differ by more than the range of int32",
        )
    return np.rint(np.ldexp(values, shift)).astype(np.int32), shift
