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
from numbers import Integral

import numpy as np

from torq_byoc.errors import InternalError, QuantizationError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.floats import round_bf16, round_to
from torq_byoc.npu_model.integers import LOW_WORD, MAX_SHIFT, clip_bounds, saturate, scaled, settled, update, wrap
from torq_byoc.npu_model.isa import ActConfig, ActMode, Rounding

__all__ = [
    "act_float",
    "apply_act",
    "clip_bounds",
    "fixed_point",
    "rescale",
    "round_bf16",
    "round_to",
    "saturate",
    "table_lookup",
    "wrap",
]

_FLOAT_MODES = frozenset({ActMode.ACT, ActMode.ABS, ActMode.NEG, ActMode.CEL, ActMode.FLR, ActMode.F2I})
_FLOAT_FUNCTIONS = {ActMode.ABS: np.abs, ActMode.NEG: np.negative, ActMode.CEL: np.ceil, ActMode.FLR: np.floor}
_INTEGER_MODES = frozenset(ActMode) - {ActMode.CEL, ActMode.FLR, ActMode.F2I}


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
        return update(np.add, np.array(acc, np.float32), bias)


def register_bound(bound: float) -> float:
    """A clip bound as its register of 32 bits holds it: an integer as it is, a float rounded to fp32, infinite where
    that has no number so large."""
    if isinstance(bound, Integral):
        return bound
    with np.errstate(over="ignore"):
        return float(np.float32(bound))


def _clip_float(values: np.ndarray, clip_min: float, clip_max: float) -> np.ndarray:
    """Clip to fp32 bounds in place; a NaN stays."""
    low, high = register_bound(clip_min), register_bound(clip_max)
    if low != -math.inf:
        np.maximum(values, np.float32(low), out=values)
    if high != math.inf:
        np.minimum(values, np.float32(high), out=values)
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
        return settled(_to_integer(values, act.rounding), act, out)
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
        return settled(_bit_operation(acc, act, scale), act, out)
    total = update(np.add, wrap(acc, act.sum_bits), bias)
    if mode is ActMode.I2F:
        return round_to(_clip_float(total.astype(np.float32), act.clip_min, act.clip_max), out)
    if mode is ActMode.ABS:
        np.abs(total, out=total)
    elif mode is ActMode.NEG:
        np.negative(total, out=total)
    values = scaled(total, scale, act)
    if mode is ActMode.TABLE:
        if table is None:
            raise InternalError(
                "a table look-up without a table",
                remedy="report it with the model; the kernel of this operator is at fault",
            )
        values = table_lookup(saturate(values, DType.INT16), table).astype(np.int64)
    return settled(values, act, out)


def _bit_operation(acc: np.ndarray, act: ActConfig, scale: np.ndarray | int | None) -> np.ndarray:
    """CLZ and the variable shifts on the 32-bit accumulator; int64 array of 32-bit results."""
    value = wrap(acc, 32)
    if act.mode is ActMode.CLZ:
        # frexp gives the bit length of an exact float64; 0 has none.
        return 32 - np.frexp((value & LOW_WORD).astype(np.float64))[1].astype(np.int64)
    amount = np.asarray(0 if scale is None else scale, np.int64) & MAX_SHIFT
    if act.mode is ActMode.LSL:
        return wrap(np.where(amount < 32, value << np.minimum(amount, 31), 0), 32)
    if act.mode is ActMode.LSR:
        return wrap((value & LOW_WORD) >> amount, 32)
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
