"""Matrix products: [matmul, bias, relu or clip], with constant weights or between two activations."""

from __future__ import annotations

import numpy as np
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, is_op, wildcard

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.arithmetic import float_rescale, requantization, same_everywhere, wide_sum
from torq_byoc.relay_patterns.legality import activation_reasons, float_reasons, output_reasons
from torq_byoc.relay_patterns.lowering import Lowering, quant_of
from torq_byoc.relay_patterns.matchers import activated, biased, dequantized, quantized
from torq_byoc.relay_patterns.parameters import bias_of, integer_weights, weight_reasons
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, static_shape


def _quantized_graph() -> DFPattern:
    return quantized(activated(biased(is_op("relax.matmul")(dequantized(), dequantized()))))


def _float_graph() -> DFPattern:
    return activated(biased(is_op("relax.matmul")(wildcard(), wildcard())))


def _rank_reasons(matmul: Call) -> list[str]:
    ranks = [int(argument.ty.ndim) for argument in matmul.args]
    return [f"an operand has rank {min(ranks)}, below 2"] if min(ranks) < 2 else []


def _folded(view: View, matmul: Call) -> bool:
    """Whether the right operand is a constant matrix (its column sums then fold into the bias)."""
    right = view.operand(matmul.args[1])
    return right.constant is not None and len(right.shape) == 2


def check_quantized(view: View) -> list[str]:
    """Operands of rank 2 or more; a constant right operand may be quantized per column; bias one value a column."""
    matmul = view.require("matmul")
    reasons = _rank_reasons(matmul) + output_reasons(view.output())
    if reasons:
        return reasons
    reasons = activation_reasons(view.operand(matmul.args[0]), "its left operand")
    if _folded(view, matmul):
        reasons += weight_reasons(view.operand(matmul.args[1]), channel_axis=1)
    else:
        reasons += activation_reasons(view.operand(matmul.args[1]), "its right operand")
    return reasons + bias_of(view, matmul, channel_axis=-1).reasons


def check_float(view: View) -> list[str]:
    """All float32; operands of rank 2 or more; bias one value a column."""
    matmul = view.require("matmul")
    return _rank_reasons(matmul) or float_reasons(view) + bias_of(view, matmul, channel_axis=-1).reasons


def lower_quantized(low: Lowering) -> str:
    """matmul; the left zero point goes into the bias, or both are removed first by an int16 requantize."""
    matmul = low.view.require("matmul")
    left, out = quant_of(low.view.operand(matmul.args[0])), low.out
    assert out is not None
    right = low.view.operand(matmul.args[1])
    a = low.tensor(matmul.args[0])
    if _folded(low.view, matmul):
        weights, scales = integer_weights(right, channel_axis=1)
        correction = -left.zero_point * weights.sum(axis=0, dtype=np.int64)
        b, b_type = low.constant(weights), DType.of(weights.dtype)
    else:
        a, left = low.centered(a, left)
        b, centered = low.centered(low.tensor(matmul.args[1]), quant_of(right))
        scales, b_type = np.full(static_shape(matmul)[-1], centered.scale), centered.dtype
        correction = np.zeros(len(scales), np.int64)
    unit = left.scale * scales
    bias = np.rint(bias_of(low.view, matmul, channel_axis=-1).real / unit).astype(np.int64) + correction
    columns = slice(1) if same_everywhere(unit, bias) else slice(None)
    rescale = requantization(
        unit[columns] / out.scale,
        bias[columns],
        out,
        bounds=low.bounds(),
        axis=-1,
        wide=wide_sum(left.dtype, b_type),
    )
    return low.emit("matmul", [a, b], static_shape(matmul), out, rescale=rescale)


def lower_float(low: Lowering) -> str:
    """matmul in bf16 with an fp32 bias."""
    matmul = low.view.require("matmul")
    bias = bias_of(low.view, matmul, channel_axis=-1).real
    rescale = float_rescale(bias if bias.any() else 0.0, low.bounds(), axis=-1)
    a, b = (low.tensor(argument) for argument in matmul.args)
    return low.emit("matmul", [a, b], static_shape(matmul), DType.BF16, rescale=rescale)


PATTERNS = (
    Pattern("torq.matmul", "quantized", _quantized_graph, check_quantized, lower_quantized),
    Pattern("torq.bf16.matmul", "bf16", _float_graph, check_float, lower_float),
)
