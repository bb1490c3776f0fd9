"""PRelu: x above zero, slope * x below; slopes shared, per channel, or of any shape that broadcasts to x.

Integer of one byte, slopes along at most one axis: one pass where the zero point is 0 and two elsewhere, with
integer weights in the ratio of the slopes (``two_slopes``), where those are precise enough.

Integer otherwise: max(x, slope * x) when no slope exceeds 1, min when none is below 1, else the sum of both halves, of
which one is always zero; x and slope * x are rounded to the result's codes first.  Rounding is monotone, so it commutes
with max and min; every form is exact, up to the 16 bits of slopes that vary along several axes.

bf16: max(x, slope * x) when no slope exceeds 1, min when none is below 1, else the sum of both halves.
"""

from __future__ import annotations

import math

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.arithmetic import requantization
from torq_byoc.relay_patterns.composites import two_slopes
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale, to_codes
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.quant_params import QuantParams


def lower(builder: GraphBuilder, x: str, slopes: np.ndarray, out: QuantParams | None, origin: str) -> str:
    """Decompose PRelu.

    Args:
        builder: receives the nodes.
        x: int8, uint8 or int16 with a scale, or bf16.
        slopes: real slopes; broadcast to x by numpy's rules.
        out: quantization of the result; None for bf16.
        origin: the ONNX node.

    Returns:
        Name of the output tensor.

    Raises:
        QuantizationError: x has no scale, or scales are out of reach.
    """
    e = Emitter(builder, origin)
    slopes = np.asarray(slopes, np.float64)
    if out is None:
        return _lower_float(e, x, slopes)
    return _lower_integer(e, x, slopes, out)


def _lower_float(e: Emitter, x: str, slopes: np.ndarray) -> str:
    factor = e.constant(slopes.astype(DType.BF16.numpy).reshape(_aligned(slopes, len(e.info(x).shape))), "slopes")
    if _is_extremum(slopes):
        scaled = e.mul(x, factor, DType.BF16)
        return e.maximum(x, scaled) if slopes.max() <= 1 else e.minimum(x, scaled)
    above = e.act(x, DType.BF16, float_rescale(clip=(0.0, math.inf)))
    below = e.act(x, DType.BF16, float_rescale(clip=(-math.inf, 0.0)))
    return e.sum2(above, e.mul(below, factor, DType.BF16), (1.0, 1.0), DType.BF16)


def _lower_integer(e: Emitter, x: str, slopes: np.ndarray, out: QuantParams) -> str:
    source = quantization(e, x)
    low, high = source.dtype.integer_range
    if source.zero_point == low:
        return _line(e, x, source, out)
    if source.zero_point == high:
        return _slanted(e, x, source, slopes, out)
    return _weighted(e, x, source, slopes, out) or _halves(e, x, source, slopes, out)


def _weighted(e: Emitter, x: str, source: QuantParams, slopes: np.ndarray, out: QuantParams) -> str | None:
    """Integer weights; None where they do not fit the types, are too coarse, or save no pass."""
    if source.dtype.size > 1 or out.dtype.size > 1 or len(_varying(e, x, slopes)) > 1:
        return None
    shape = e.info(x).shape
    axis = next(iter(_varying(e, x, slopes)), 0)
    flat = slopes.astype(np.float64).reshape(-1)
    if source.zero_point == 0 and (found := two_slopes.as_maximum(flat, axis, source, out)):
        inputs = [x, e.constant(found.weights, "weights")]
        return e.emit("weighted_max", inputs, out.dtype, shape=shape, rescale=found.rescale, out=out, axis=axis)
    if source == out and _is_extremum(slopes):
        return None
    if found := two_slopes.as_sum(flat, axis, source, out):
        positive = e.act(x, source.dtype, integer_rescale(clip=(source.zero_point, math.inf)), out=source)
        inputs = [x, positive, e.constant(found.weights, "weights")]
        return e.emit("weighted_sum", inputs, out.dtype, shape=shape, rescale=found.rescale, out=out, axis=axis)
    return None


def _halves(e: Emitter, x: str, source: QuantParams, slopes: np.ndarray, out: QuantParams) -> str:
    """Both pieces rounded to codes, then the larger, the smaller or the sum of them."""
    if _is_extremum(slopes):
        line = x if source == out else _line(e, x, source, out)
        slanted = _slanted(e, x, source, slopes, out)
        return e.maximum(line, slanted, out=out) if slopes.max() <= 1 else e.minimum(line, slanted, out=out)
    gain = source.scale / out.scale
    above = e.act(x, out.dtype, requantization(gain, -source.zero_point, out, bounds=(0.0, math.inf)), out=out)
    negative = e.act(x, source.dtype, integer_rescale(clip=(-math.inf, source.zero_point)), out=source)
    joined = integer_rescale(bias=-out.zero_point)
    return e.sum2(above, _slanted(e, negative, source, slopes, out), (1, 1), out.dtype, joined, out=out)


def _is_extremum(slopes: np.ndarray) -> bool:
    """Whether one of the two straight pieces is nowhere above the other."""
    return bool(slopes.max() <= 1 or slopes.min() >= 1)


def _line(e: Emitter, x: str, source: QuantParams, out: QuantParams) -> str:
    """Codes of x itself."""
    rescale = requantization(source.scale / out.scale, -source.zero_point, out)
    return e.act(x, out.dtype, rescale, out=out)


def _slanted(e: Emitter, x: str, source: QuantParams, slopes: np.ndarray, out: QuantParams) -> str:
    """Codes of slope * x with one rounding: slopes a channel are scales of the ACT unit, others int16 factors."""
    aligned = slopes.reshape(_aligned(slopes, len(e.info(x).shape)))
    varying = _varying(e, x, slopes)
    gain = source.scale / out.scale
    if len(varying) <= 1:
        axis = varying[0] if varying else None
        entries = requantization(aligned.reshape(-1) * gain, -source.zero_point, out, axis=axis)
        return e.act(x, out.dtype, entries, out=out)
    centred = source.centred()
    if source != centred:
        x = e.act(x, DType.INT16, integer_rescale(bias=-source.zero_point), out=centred)
    unit = float(np.abs(slopes).max() or 1.0) / (2**15 - 1)
    factor = e.constant(np.rint(aligned / unit).astype(np.int16), "slopes")
    return e.mul(x, factor, out.dtype, to_codes(unit * gain, out, sum_bits=48, where=e.origin), out=out)


def _varying(e: Emitter, x: str, slopes: np.ndarray) -> list[int]:
    """Axes along which the slopes differ."""
    return [axis for axis, size in enumerate(_aligned(slopes, len(e.info(x).shape))) if size > 1]


def _aligned(slopes: np.ndarray, rank: int) -> tuple[int, ...]:
    return (1,) * (rank - slopes.ndim) + slopes.shape
