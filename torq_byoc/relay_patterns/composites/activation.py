"""Element-wise activations and other unary functions as primitive nodes.

Quantized input: one exact table (8 bit) or one piecewise table (16 bit), see ``integer_activation``; a plain
ACT pass for clip, relu, abs and neg, see ``piecewise_integer``.
bf16 input: a recipe a function, see ``float_activation``.
"""

from __future__ import annotations

from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import float_activation, functions, integer_activation, piecewise_integer
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.quant_params import QuantParams


def lower(
    builder: GraphBuilder, x: str, function: str, out: QuantParams | None, origin: str, **attributes: float
) -> str:
    """Decompose function(x).

    Args:
        builder: receives the nodes.
        x: input tensor; int8, uint8 or int16 with a scale, or bf16.
        function: a name of ``functions.FUNCTIONS``.
        out: quantization of the result; None for bf16.
        origin: the ONNX node.
        attributes: the function's own (alpha, beta, exponent, ...).

    Returns:
        Name of the output tensor.

    Raises:
        UnsupportedOpError: no such function, or none for bf16.
        QuantizationError: types that tables do not map.
    """
    e = Emitter(builder, origin)
    source = builder.info(x).dtype
    if not supports(function, source) or (out is None) != (source is DType.BF16):
        raise UnsupportedOpError(
            f"'{function}' has no NPU form from {source.value} to {out.dtype.value if out else 'bfloat16'}",
            where=origin,
            why="tables map quantized to quantized types; bf16 recipes map bf16 to bf16",
            remedy="leave the operator to the CPU, or quantize both sides",
        )
    if out is None:
        return float_activation.RECIPES[function](e, x, **attributes)
    if function in piecewise_integer.RECIPES:
        return piecewise_integer.RECIPES[function](e, x, out, **attributes)
    return integer_activation.lower(e, x, lambda v: functions.evaluate(function, v, **attributes), out)


def supports(function: str, dtype: DType) -> bool:
    """Whether a function has a form for inputs of a type."""
    if dtype is DType.BF16:
        return function in float_activation.RECIPES
    return function in functions.FUNCTIONS and dtype in (DType.INT8, DType.UINT8, DType.INT16)
