"""Reasons why a group of operators cannot run on the NPU, shared by the pattern tables."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from torq_byoc.relay_patterns.view import (
    Operand,
    Quantization,
    View,
    constant_value,
    dtype_of,
    op_name,
    quantization_of,
    shape_of,
)

ACTIVATION_TYPES = ("int8", "uint8", "int16")
MAX_RANK = 8
_ELEMENTWISE = frozenset(f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "power", "nn.prelu"))


def common_reasons(view: View) -> list[str]:
    """What holds for every group: static shapes, a rank the descriptors can walk, constant quantization."""
    reasons = []
    for call in view.calls():
        if isinstance(call.ty, relax.TensorType) and shape_of(call) is None:
            reasons.append(f"{op_name(call)} has a dynamic shape")
        for argument in call.args:
            if isinstance(getattr(argument, "ty", None), relax.TensorType) and shape_of(argument) is None:
                reasons.append(f"{op_name(call)} reads a tensor of dynamic shape")
            if 0 in (shape_of(argument) or ()):
                reasons.append(f"{op_name(call)} reads an empty tensor")
        if isinstance(call.ty, relax.TensorType) and int(call.ty.ndim) > MAX_RANK:
            reasons.append(f"{op_name(call)} has rank {int(call.ty.ndim)}, above {MAX_RANK}")
        if 0 in (shape_of(call) or ()):
            reasons.append(f"{op_name(call)} has an empty result")
        reasons += _quantization_reasons(call) + _constant_reasons(call)
    return list(dict.fromkeys(reasons))


def _quantization_reasons(call: Call) -> list[str]:
    if op_name(call) not in ("relax.quantize", "relax.dequantize"):
        return []
    quant = quantization_of(call)
    if quant is None:
        return [f"{op_name(call)} has a scale or zero point that is not constant"]
    if not np.all(np.isfinite(quant.scale)) or np.any(quant.scale <= 0):
        return [f"{op_name(call)} has a scale that is not a positive finite number"]
    return []


def _constant_reasons(call: Call) -> list[str]:
    """Numbers that no rescale, table or product can be made of."""
    if op_name(call) == "relax.nn.leakyrelu" and not np.isfinite(call.attrs.alpha):
        return ["its slope is no finite number"]
    if op_name(call) not in _ELEMENTWISE:
        return []
    constants = [value for value in map(constant_value, call.args) if value is not None and value.dtype.kind == "f"]
    if any(np.isnan(value).any() for value in constants):
        return [f"{op_name(call)} has a constant that is NaN"]
    if op_name(call) == "relax.power" and any(np.isinf(value).any() for value in constants):
        return [f"{op_name(call)} has an infinite constant"]
    return []


def activation_reasons(operand: Operand, label: str) -> list[str]:
    """A quantized activation needs one scale for the tensor and a type the machine multiplies."""
    if operand.quant is None:
        if operand.constant is not None:
            return []
        return [f"{label} is not quantized"]
    reasons = []
    if operand.quant.dtype not in ACTIVATION_TYPES:
        reasons.append(f"{label} has type {operand.quant.dtype}, not one of {', '.join(ACTIVATION_TYPES)}")
    if not operand.quant.per_tensor:
        reasons.append(f"{label} is quantized per channel")
    return reasons


def output_reasons(quant: Quantization | None) -> list[str]:
    """The result's quantization, like an activation's."""
    if quant is None:
        return ["its result is not quantized"]
    reasons = []
    if quant.dtype not in ACTIVATION_TYPES:
        reasons.append(f"its result has type {quant.dtype}, not one of {', '.join(ACTIVATION_TYPES)}")
    if not quant.per_tensor:
        reasons.append("its result is quantized per channel")
    return reasons


def quantized_reasons(view: View, *arguments: relax.Expr) -> list[str]:
    """Activations ``arguments`` and the result are all quantized per tensor."""
    reasons = [r for i, a in enumerate(arguments) for r in activation_reasons(view.operand(a), f"input {i}")]
    return reasons + output_reasons(view.output())


def float_reasons(view: View) -> list[str]:
    """A group for the bf16 path holds float32 tensors only."""
    kinds = {dtype_of(call) for call in view.calls() if isinstance(call.ty, relax.TensorType)}
    kinds |= {
        dtype_of(a) for call in view.calls() for a in call.args if isinstance(getattr(a, "ty", None), relax.TensorType)
    }
    return [f"it works on {kind}, not float32" for kind in sorted(kinds - {"float32"})]


def int_attr(value: object) -> int:
    """A Relax integer attribute or argument as a Python int."""
    return int(value.value) if isinstance(value, tvm.tirx.IntImm) else int(value)  # type: ignore[call-overload]
