"""From real-valued scales to the integers of the ACT unit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from torq_byoc.errors import QuantizationError
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.npu_model.numerics import fixed_point
from torq_byoc.relay_patterns.quant_params import QuantParams

INT32 = (-(1 << 31), (1 << 31) - 1)
Bounds = tuple[float, float]
UNBOUNDED: Bounds = (float("-inf"), float("inf"))


def requantization(
    multiplier: np.ndarray | float,
    bias: np.ndarray | int,
    out: QuantParams,
    *,
    bounds: Bounds = UNBOUNDED,
    axis: int | None = None,
    wide: bool = False,
) -> Rescale:
    """The rescale that turns an accumulator into codes of ``out``; ties go to even, as QuantizeLinear rounds.

    Args:
        multiplier: real value of one accumulator unit, in units of ``out.scale``; one or one a channel.
        bias: added to the accumulator; one or one a channel.
        bounds: real-valued limits of an activation function that follows (relu is (0, inf)).  They become
            the clip of the codes: quantizing is monotone, so clip and quantize commute.
        axis: output axis of the channels.
        wide: the accumulator has 48 bits.

    Raises:
        QuantizationError: a bias does not fit 32 bits, or a multiplier has no fixed-point form.
    """
    factors, biases = np.broadcast_arrays(
        np.atleast_1d(np.asarray(multiplier, np.float64)), np.atleast_1d(np.asarray(bias, np.int64))
    )
    if biases.min() < INT32[0] or biases.max() > INT32[1]:
        raise QuantizationError(
            "a bias does not fit the NPU's register",
            why=f"with the zero point folded in it is {int(np.abs(biases).max())}; the register is an int32",
            remedy="quantize the layer's input with zero point 0, or its weights with larger scales",
        )
    scale, shift = fixed_point(factors)
    low, high = clip_codes(out, bounds)
    return Rescale(
        bias=biases.astype(np.int32),
        scale=scale,
        shift=shift,
        zero_point=out.zero_point,
        clip_min=low,
        clip_max=high,
        axis=axis if factors.size > 1 else None,
        sum_bits=48 if wide else 32,
        rounding=Rounding.NTE,
    )


def clip_codes(out: QuantParams, bounds: Bounds) -> tuple[int, int]:
    """The codes of real-valued bounds, within the type's range."""
    low, high = out.dtype.integer_range
    if bounds[0] != float("-inf"):
        low = int(out.quantize(bounds[0]))
    if bounds[1] != float("inf"):
        high = int(out.quantize(bounds[1]))
    return low, high


def float_rescale(bias: np.ndarray | float = 0.0, bounds: Bounds = UNBOUNDED, axis: int | None = None) -> Rescale:
    """The rescale of a bf16 operator: fp32 bias and clip."""
    biases = np.atleast_1d(np.asarray(bias, np.float32))
    return Rescale(bias=biases, clip_min=bounds[0], clip_max=bounds[1], axis=axis if biases.size > 1 else None)


def weight_pair(a: float, b: float, limit: int) -> tuple[int, int, float]:
    """Integer weights wa : wb close to a : b, and the (positive) real value of one unit of x*wa + y*wb.

    The larger weight is not simply scaled to the limit: the best rational approximation of the ratio with
    both terms at most ``limit`` is taken, so the ratio is off by less than 1 / (denominator x limit).
    """
    swap = abs(b) > abs(a)
    major, minor = (b, a) if swap else (a, b)
    ratio = Fraction(minor / major).limit_denominator(limit)
    sign = 1 if major > 0 else -1
    large, small = sign * ratio.denominator, sign * ratio.numerator
    return (small, large, abs(major) / ratio.denominator) if swap else (large, small, abs(major) / ratio.denominator)


def wide_sum(*types: DType) -> bool:
    """Whether the accumulator needs 48 bits for these operand types."""
    return any(t in (DType.INT16, DType.UINT16) for t in types)


def same_everywhere(*arrays: np.ndarray) -> bool:
    """Whether each array holds one value only."""
    return all(bool(np.all(array == array.reshape(-1)[0])) for array in arrays)
