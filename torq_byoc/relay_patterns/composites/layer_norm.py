"""Layer, instance and group normalisation: (x - mean) / sqrt(variance + epsilon) * gamma + beta over trailing axes.

All statistics are taken from rows of a [rows, N] view.  The mean of bf16 data is a product with a column of -1/N,
which bf16 cannot hold: neighbouring bf16 numbers are mixed so that the column sums to exactly -1, and a large
mean cancels.  The mean stays in fp32 and is added as a bias of its row.

Codes are centred as integers, in steps of 2**-7 of a code: where all of a row are equal nothing is left of it, however
small epsilon may be.  Differences, epsilon in the same steps, and what follows are bf16; the result leaves in units of
output codes as fp32, rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import float_table
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale
from torq_byoc.relay_patterns.composites.float_bits import bf16_of_pattern, bf16_pattern
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.quant_params import QuantParams

BF16, FP32 = DType.BF16, DType.FP32
VARIANCE_BINADES = 64
SMALLEST_EPSILON = 2.0**-60
STEPS = 1 << 7
"""Of a code, in which differences from the mean are int16."""
NEGLIGIBLE = 2.0**-12
"""Share of the smallest variance that a row of codes can have, short of none, below which an epsilon has no effect."""


@dataclass(frozen=True, eq=False)
class Norm:
    """What to normalise.

    Attributes:
        axes: how many trailing axes make a row.
        gamma, beta: real arrays that broadcast to x, or None for 1 and 0.
        epsilon: added to the variance, real.
    """

    axes: int
    gamma: np.ndarray | None = None
    beta: np.ndarray | None = None
    epsilon: float = 1e-5


def lower(builder: GraphBuilder, x: str, norm: Norm, out: QuantParams | None, origin: str) -> str:
    """Decompose a normalisation.

    Args:
        builder: receives the nodes.
        x: int8 or uint8 with a scale, or bf16.
        norm: rows, gamma, beta, epsilon.
        out: int8 or uint8 quantization of the result; None for bf16.
        origin: the ONNX node.

    Returns:
        Name of the output tensor.

    Raises:
        UnsupportedOpError: 16-bit codes, which bf16 would cut to 8 bits.
        QuantizationError: x has no scale.
    """
    e = Emitter(builder, origin)
    epsilon = norm.epsilon
    if out is not None:
        source = quantization(e, x)
        if source.dtype.size > 1 or out.dtype.size > 1:
            raise UnsupportedOpError(
                "normalisation of 16-bit codes has no NPU form",
                where=origin,
                why=f"types {source.dtype.value} to {out.dtype.value}; statistics run in bf16, which has 8 bits",
                remedy="quantize to 8 bits, or keep the operator in bf16",
            )
    shape = e.info(x).shape
    columns = math.prod(shape[len(shape) - norm.axes :])
    flat = e.reshape(x, (math.prod(shape) // columns, columns))
    if out is None:
        centred = _centred(e, flat)
    else:
        centred = _centred_codes(e, flat)
        epsilon = epsilon_in_steps(epsilon, source.scale, columns)
    normal = _normalised(e, centred, max(epsilon, SMALLEST_EPSILON))
    return _affine(e, e.reshape(normal, shape), norm, out)


def epsilon_in_steps(epsilon: float, scale: float, columns: int) -> float:
    """What is added to the variance of a row of codes, in square ``STEPS`` of a code.

    Args:
        epsilon: the same, real.
        scale: of the codes.
        columns: codes in a row.
    """
    least = max(columns - 1, 1) / columns**2
    return STEPS**2 * max(epsilon / scale**2, NEGLIGIBLE * least)


def _centred(e: Emitter, x: str) -> str:
    """bf16 rows without their means."""
    rows, columns = e.info(x).shape
    mean = _product(e, x, e.constant(-mean_column(columns), "mean"), 0.0)
    return e.emit("scale_rows", [x, e.reshape(mean, (rows, 1, 1))], BF16, shape=(rows, columns))


def _centred_codes(e: Emitter, x: str) -> str:
    """Rows of codes without their means, in ``STEPS`` of a code, as bf16; the zero point cancels."""
    rows, columns = e.info(x).shape
    ones = e.constant(np.ones((columns, 1), np.int8), "ones")
    mean = e.emit("matmul", [x, ones], DType.INT32, shape=(rows, 1), rescale=integer_rescale(STEPS / columns))
    steps = e.act(x, DType.INT16, integer_rescale(STEPS))
    unchanged = Rescale(np.zeros(1, np.int32))
    entries = e.pairs(mean, (-1, 0), (0, 1))
    centred = e.emit("scale_rows", [steps, entries], DType.INT16, shape=(rows, columns), rescale=unchanged)
    return e.act(centred, BF16, mode="I2F")


def _normalised(e: Emitter, centred: str, epsilon: float) -> str:
    """x / sqrt(mean of squares + epsilon) for rows [rows, N] in bf16."""
    share = e.constant(mean_column(e.info(centred).shape[1]), "share")
    variance = _product(e, e.mul(centred, centred, BF16), share, epsilon)
    lowest = math.floor(math.log2(epsilon))
    inverse = float_table.lower_binades(e, variance, _inverse_root, lowest, VARIANCE_BINADES)
    return e.mul(centred, inverse, BF16)


def mean_column(length: int) -> np.ndarray:
    """bf16[length, 1] of the two neighbours of 1/length, mixed evenly so that the sum is as near to 1 as can be."""
    pattern = float(bf16_pattern(np.array(1.0 / length)))
    below = bf16_of_pattern(np.array(math.floor(pattern)))
    above = bf16_of_pattern(np.array(math.floor(pattern) + 1))
    count = round(float((1.0 - length * below) / (above - below)))
    steps = np.arange(length + 1) * count // length
    return np.where(np.diff(steps) > 0, above, below).astype(BF16.numpy).reshape(length, 1)


def _product(e: Emitter, a: str, column: str, bias: float) -> str:
    shape = (e.info(a).shape[0], 1)
    return e.emit("matmul", [a, column], FP32, shape=shape, rescale=float_rescale(bias))


def _inverse_root(x: np.ndarray) -> np.ndarray:
    return 1.0 / np.sqrt(x)


def _affine(e: Emitter, x: str, norm: Norm, out: QuantParams | None) -> str:
    """x * gamma + beta; for codes with the output scale folded in."""
    unit = 1.0 if out is None else out.scale
    rank = len(e.info(x).shape)
    gamma = _aligned(norm.gamma, rank, 1.0) / unit
    beta = _aligned(norm.beta, rank, 0.0) / unit
    if sum(size > 1 for size in beta.shape) > 1:
        return _affine_planar(e, x, gamma, beta, out)
    factor = e.constant(gamma.astype(BF16.numpy), "gamma")
    axis = next((axis for axis, size in enumerate(beta.shape) if size > 1), None)
    offsets = Rescale(beta.reshape(-1).astype(np.float32), axis=axis)
    return e.mul(x, factor, BF16, offsets) if out is None else e.to_codes(e.mul(x, factor, FP32, offsets), out)


def _affine_planar(e: Emitter, x: str, gamma: np.ndarray, beta: np.ndarray, out: QuantParams | None) -> str:
    """The same for beta that varies along several axes: a sum of its own."""
    scaled = e.mul(x, e.constant(gamma.astype(BF16.numpy), "gamma"), BF16)
    shift = e.constant(beta.astype(BF16.numpy), "beta")
    if out is None:
        return e.sum2(scaled, shift, (1.0, 1.0), BF16)
    return e.to_codes(e.sum2(scaled, shift, (1.0, 1.0), FP32), out)


def _aligned(values: np.ndarray | None, rank: int, default: float) -> np.ndarray:
    array = np.asarray(default if values is None else values, np.float64)
    return array.reshape((1,) * (rank - array.ndim) + array.shape)
