"""Where integer and bf16 operators of one model meet: codes become floats, floats become codes.

ACT turns whole numbers into floats and back, and multiplies in neither direction.  The scale is therefore a product
of its own: after the one conversion, before the other.  Codes of 8 bits without their zero point are bf16 numbers, so
their values are rounded once; those of 16 bits are rounded twice.  Towards codes the product stays fp32.
"""

from __future__ import annotations

from tvm.relax.dpl import DFPattern, wildcard

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import float_activation
from torq_byoc.relay_patterns.composites.fixed_point import integer_rescale
from torq_byoc.relay_patterns.composites.float_bits import split_bf16
from torq_byoc.relay_patterns.legality import ACTIVATION_TYPES, output_reasons
from torq_byoc.relay_patterns.lowering import Lowering
from torq_byoc.relay_patterns.matchers import dequantized, quantized
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import Quantization, View, constant_value, dtype_of, quantization_of

TO_BF16, TO_CODES = "torq.to_bf16", "torq.to_codes"
"""Composite names; ``group_borders`` finds the operators."""
SCALES = (2.0**-120, 2.0**120)
"""Scales whose reciprocals, and the low halves of either, are normal bf16 numbers."""


def _scale_reasons(quant: Quantization | None) -> list[str]:
    if quant is None or SCALES[0] <= quant.scale.min() <= quant.scale.max() <= SCALES[1]:
        return []
    return [f"its scale is not between {SCALES[0]:.0e} and {SCALES[1]:.0e}"]


def check_dequantize(view: View) -> list[str]:
    """Codes of 8 bits or int16 with one scale, read by a bf16 operator on the NPU."""
    codes, quant = view.root.args[0], quantization_of(view.root)
    if constant_value(codes) is not None:
        return ["its data is constant"]
    reasons = [] if dtype_of(view.root) == "float32" else [f"its result has type {dtype_of(view.root)}, not float32"]
    if dtype_of(codes) not in ACTIVATION_TYPES:
        reasons.append(f"its data has type {dtype_of(codes)}, not one of {', '.join(ACTIVATION_TYPES)}")
    if quant is not None and not quant.per_tensor:
        reasons.append("its data is quantized per channel")
    return reasons + _scale_reasons(quant)


def lower_dequantize(low: Lowering) -> str:
    """act (int to float), then the scale."""
    quant = quantization_of(low.view.root)
    assert quant is not None
    params, e = quant.params(), low.emitter
    whole = e.act(low.tensor(low.view.root.args[0]), DType.BF16, integer_rescale(bias=-params.zero_point), mode="I2F")
    return whole if params.scale == 1.0 else e.sum2(whole, whole, split_bf16(params.scale), DType.BF16)


def check_quantize(view: View) -> list[str]:
    """The result of a bf16 operator on the NPU, to codes of 8 bits or int16 with one scale."""
    kind = dtype_of(view.root.args[0])
    reasons = [] if kind == "float32" else [f"its data has type {kind}, not float32"]
    return reasons + output_reasons(view.output()) + _scale_reasons(view.output())


def lower_quantize(low: Lowering) -> str:
    """The reciprocal of the scale, then act (float to int)."""
    out, e = low.out, low.emitter
    assert out is not None
    x = low.tensor(low.view.root.args[0])
    return e.to_codes(x if out.scale == 1.0 else float_activation.affine(e, x, 1.0 / out.scale, dtype=DType.FP32), out)


def _quantize_graph() -> DFPattern:
    return quantized(wildcard())


PATTERNS = (
    Pattern(TO_BF16, "mixed", dequantized, check_dequantize, lower_dequantize),
    Pattern(TO_CODES, "mixed", _quantize_graph, check_quantize, lower_quantize),
)
