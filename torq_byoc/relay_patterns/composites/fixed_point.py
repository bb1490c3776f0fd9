"""Real multipliers as the int32 scale and shift that ACT applies, and the ``Rescale`` records around them."""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.errors import QuantizationError
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.npu_model.numerics import fixed_point
from torq_byoc.relay_patterns.quant_params import QuantParams


def multipliers(reals: np.ndarray | float, where: str = "") -> tuple[np.ndarray, int]:
    """int32 scales of real factors that share one shift, and that shift: real = scale * 2**-shift.

    Args:
        reals: one factor, or one a channel.
        where: the ONNX node, for the error.

    Raises:
        QuantizationError: a factor is not finite or is 2**31 or more.
    """
    try:
        scales, shift = fixed_point(np.atleast_1d(np.asarray(reals, np.float64)))
    except QuantizationError as error:
        raise QuantizationError(error.what, where=where, why=error.why, remedy=error.remedy) from error
    return scales.reshape(np.shape(reals) or (1,)), shift


def integer_rescale(
    factor: float = 1.0,
    *,
    bias: int = 0,
    zero_point: int = 0,
    clip: tuple[float, float] = (-math.inf, math.inf),
    sum_bits: int = 32,
    rounding: Rounding = Rounding.NTP,
    where: str = "",
) -> Rescale:
    """y = clip(round((p + bias) * factor) + zero_point); powers of two and whole factors stay exact.

    Raises:
        QuantizationError: the factor or the bias does not fit 32 bits.
    """
    if not -(2**31) <= bias < 2**31:
        raise QuantizationError(
            "a rescale bias cannot be expressed by the NPU", where=where, why=f"bias {bias}; the register is an int32"
        )
    if factor == int(factor) and abs(factor) < 1 << 31:
        scales, shift = np.array([int(factor)], np.int32), 0
    else:
        scales, shift = multipliers(factor, where)
    return Rescale(
        bias=np.array([bias], np.int32),
        scale=scales,
        shift=shift,
        zero_point=zero_point,
        clip_min=clip[0],
        clip_max=clip[1],
        rounding=rounding,
        sum_bits=sum_bits,
    )


def to_codes(factor: float, out: QuantParams, *, bias: int = 0, sum_bits: int = 32, where: str = "") -> Rescale:
    """The last rescale of an operator: y = round((p + bias) * factor) + zero point, ties to even like QuantizeLinear.

    Raises:
        QuantizationError: as ``integer_rescale``.
    """
    return integer_rescale(
        factor, bias=bias, zero_point=out.zero_point, sum_bits=sum_bits, rounding=Rounding.NTE, where=where
    )


def float_rescale(bias: float = 0.0, *, clip: tuple[float, float] = (-math.inf, math.inf)) -> Rescale:
    """y = clip(p + bias) in fp32; the float ACT has no scale."""
    return Rescale(bias=np.array([bias], np.float32), clip_min=clip[0], clip_max=clip[1])
