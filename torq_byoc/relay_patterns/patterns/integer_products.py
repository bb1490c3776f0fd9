"""Products of integers with int32 results: what ConvInteger and MatMulInteger become.

The operands are 8-bit tensors, widened and without their zero points: ``subtract(astype(x), zero point)``; weights are
stored that way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.matchers import any_of, one_of
from torq_byoc.relay_patterns.parameters import narrowest
from torq_byoc.relay_patterns.patterns.conv import CONVOLUTIONS, Geometry, emit_conv, layout_reasons
from torq_byoc.relay_patterns.quant_params import QuantParams
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, constant_value, dtype_of, op_name, static_shape

_SUMS = QuantParams(1.0, 0, DType.INT32)
_LARGEST = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class _Integers:
    """An 8-bit tensor and the zero point that is taken from it."""

    source: relax.Expr
    zero_point: int

    @property
    def quant(self) -> QuantParams:
        return QuantParams(1.0, self.zero_point, DType(dtype_of(self.source)))

    @property
    def peak(self) -> int:
        """Largest magnitude without the zero point."""
        low, high = self.quant.dtype.integer_range
        return max(high - self.zero_point, self.zero_point - low)


def _widened() -> DFPattern:
    wide = is_op("relax.astype")(wildcard())
    return any_of(is_op("relax.subtract")(wide, is_const()), wide)


def _matmul_graph() -> DFPattern:
    return is_op("relax.matmul")(_widened(), any_of(is_const(), _widened()))


def _conv_graph() -> DFPattern:
    return one_of(CONVOLUTIONS, _widened(), is_const())


def _integers(view: View, expr: relax.Expr) -> _Integers | str:
    """A widened operand, or why the NPU cannot read it."""
    call, zero_point = view.resolve(expr), 0
    if op_name(call) == "relax.subtract":
        zeros = constant_value(call.args[1])
        if zeros is None or zeros.size != 1:
            return "the zero points of an operand are not one constant"
        call, zero_point = view.resolve(call.args[0]), int(zeros.reshape(-1)[0])
    source = view.resolve(call.args[0])
    if dtype_of(source) not in ("int8", "uint8") or dtype_of(call) != "int32":
        return f"an operand is {dtype_of(source)} widened to {dtype_of(call)}, not 8 bits to int32"
    low, high = DType(dtype_of(source)).integer_range
    if not low <= zero_point <= high:
        return f"the zero point {zero_point} is no {dtype_of(source)}"
    return _Integers(source, zero_point)


def _constant_reasons(weights: np.ndarray, data: _Integers, axes: tuple[int, ...]) -> list[str]:
    """Weights of at most 16 bits, and no sum that leaves the register."""
    if narrowest(weights).dtype == np.int32:
        return ["its weights need more than 16 bits without their zero point"]
    sums = np.abs(weights.astype(np.int64)).sum(axis=axes)
    # The machine adds the zero point's part last, so the sum of the codes themselves has to fit as well.
    largest = int(sums.max(initial=0)) * (data.peak + abs(data.zero_point))
    return [f"a sum of products may reach {largest}, beyond int32"] if largest > _LARGEST else []


def check_matmul(view: View) -> list[str]:
    """8-bit operands of rank 2 or more, widened to int32 with one constant zero point each; sums within int32."""
    matmul = view.require("matmul")
    ranks = [int(argument.ty.ndim) for argument in matmul.args]
    if min(ranks) < 2:
        return [f"an operand has rank {min(ranks)}, below 2"]
    left, weights = _integers(view, matmul.args[0]), constant_value(view.resolve(matmul.args[1]))
    if isinstance(left, str):
        return [left]
    if weights is not None:
        return _constant_reasons(weights, left, (-2,))
    right = _integers(view, matmul.args[1])
    if isinstance(right, str):
        return [right]
    largest = left.peak * right.peak * static_shape(matmul.args[0])[-1]
    return [f"a sum of products may reach {largest}, beyond int32"] if largest > _LARGEST else []


def check_conv(view: View) -> list[str]:
    """8-bit data widened to int32 with one constant zero point; constant weights of 16 bits; sums within int32."""
    conv = view.require(*CONVOLUTIONS)
    data, weights = _integers(view, conv.args[0]), constant_value(view.resolve(conv.args[1]))
    if isinstance(data, str):
        return [data]
    assert weights is not None, "the pattern has constant weights"
    return layout_reasons(view) + _constant_reasons(weights, data, tuple(range(1, weights.ndim)))


def _sums(bias: np.ndarray, axis: int, wide: bool) -> Rescale:
    """The sum itself, with what the zero points add to it; one entry where all are equal."""
    entries = bias[:1] if np.all(bias == bias[0]) else bias
    return Rescale(bias=entries.astype(np.int32), axis=axis if entries.size > 1 else None, sum_bits=48 if wide else 32)


def lower_matmul(low: Lowering) -> str:
    """matmul to int32; the left zero point goes into the bias, or both are removed first by an int16 requantize."""
    matmul = low.view.require("matmul")
    left = _found(low, matmul.args[0])
    weights = constant_value(low.view.resolve(matmul.args[1]))
    columns = static_shape(matmul)[-1]
    a = low.tensor(left.source)
    if weights is not None and weights.ndim == 2:
        right = narrowest(weights)
        bias, b = -left.zero_point * right.sum(axis=0, dtype=np.int64), low.constant(right)
        return low.emit("matmul", [a, b], static_shape(matmul), _SUMS, rescale=_sums(bias, -1, right.dtype != np.int8))
    a, quant = low.centered(a, left.quant)
    if weights is not None:
        b, b_type = low.constant(narrowest(weights)), DType.of(narrowest(weights).dtype)
    else:
        factor = _found(low, matmul.args[1])
        b, centred = low.centered(low.tensor(factor.source), factor.quant)
        b_type = centred.dtype
    wide = DType.INT16 in (quant.dtype, b_type)
    return low.emit("matmul", [a, b], static_shape(matmul), _SUMS, rescale=_sums(np.zeros(columns), -1, wide))


def lower_conv(low: Lowering) -> str:
    """conv2d to int32 with the zero point's part as the bias of each channel."""
    conv: Call = low.view.require(*CONVOLUTIONS)
    data = _found(low, conv.args[0])
    weights = narrowest(np.asarray(constant_value(low.view.resolve(conv.args[1]))))
    bias = -data.zero_point * weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    attrs = Geometry.of(conv).attrs(data.zero_point)
    rescale = _sums(bias, 1, weights.dtype != np.int8)
    return emit_conv(low, conv, low.tensor(data.source), weights, attrs, _SUMS, rescale)


def _found(low: Lowering, expr: relax.Expr) -> _Integers:
    found = _integers(low.view, expr)
    assert isinstance(found, _Integers), found
    return found


PATTERNS = (
    Pattern("torq.integer_matmul", "quantized", _matmul_graph, check_matmul, lower_matmul),
    Pattern("torq.integer_conv2d", "quantized", _conv_graph, check_conv, lower_conv),
)
