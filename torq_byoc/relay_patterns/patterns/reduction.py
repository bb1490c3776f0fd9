"""Reductions over axes: mean, sum, max, min."""

from __future__ import annotations

import math

from tvm.ir import Call
from tvm.relax.dpl import DFPattern, wildcard

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns import affine
from torq_byoc.relay_patterns.affine import Affine
from torq_byoc.relay_patterns.arithmetic import float_rescale, requantization, wide_sum
from torq_byoc.relay_patterns.legality import float_reasons, int_attr, quantized_reasons
from torq_byoc.relay_patterns.lowering import Lowering, ints, quant_of
from torq_byoc.relay_patterns.matchers import activated, dequantized, one_of, quantized
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, op_name, static_shape

_REDUCTIONS = ("relax.mean", "relax.sum", "relax.max", "relax.min")
_MAX_ELEMENTS = 1 << 23
"""Elements whose 8-bit sum is certain to fit 32 bits."""


def _quantized_graph() -> DFPattern:
    return quantized(activated(one_of(_REDUCTIONS, dequantized())))


def _float_graph() -> DFPattern:
    return activated(one_of(_REDUCTIONS, wildcard()))


def _axes(call: Call) -> tuple[int, ...]:
    rank = len(static_shape(call.args[0]))
    if call.attrs.axis is None:
        return tuple(range(rank))
    return tuple(sorted(axis % rank for axis in ints(call.attrs.axis)))


def _elements(call: Call) -> int:
    shape = static_shape(call.args[0])
    return math.prod(shape[axis] for axis in _axes(call))


def _kind(call: Call) -> str:
    name = op_name(call).removeprefix("relax.")
    return "sum" if name == "mean" else name


def _attrs(call: Call) -> dict[str, object]:
    return {"kind": _kind(call), "axes": _axes(call), "keepdims": bool(int_attr(call.attrs.keepdims))}


def check_quantized(view: View) -> list[str]:
    """Data and result quantized per tensor; at most 2^23 elements a sum."""
    call = view.require(*_REDUCTIONS)
    reasons = quantized_reasons(view, call.args[0])
    if _kind(call) == "sum" and _elements(call) > _MAX_ELEMENTS:
        reasons.append(f"it adds up {_elements(call)} elements, more than {_MAX_ELEMENTS}")
    return reasons


def check_float(view: View) -> list[str]:
    """All float32."""
    return float_reasons(view)


def lower_quantized(low: Lowering) -> str:
    """reduce; zero points and the division by the count are in the rescale."""
    call = low.view.require(*_REDUCTIONS)
    source, out = quant_of(low.view.operand(call.args[0])), low.out
    assert out is not None
    added = _elements(call) if _kind(call) == "sum" else 1
    divisor = _elements(call) if op_name(call) == "relax.mean" else 1
    rescale = requantization(
        source.scale / (out.scale * divisor),
        -added * source.zero_point,
        out,
        bounds=low.bounds(),
        wide=wide_sum(source.dtype),
    )
    return low.emit("reduce", [low.tensor(call.args[0])], static_shape(call), out, attrs=_attrs(call), rescale=rescale)


def lower_float(low: Lowering) -> str:
    """reduce in bf16; a mean is multiplied with one over the count."""
    call = low.view.require(*_REDUCTIONS)
    mean = op_name(call) == "relax.mean" and _elements(call) > 1
    rescale = float_rescale(bounds=low.bounds()) if not mean else float_rescale()
    data, shape = low.tensor(call.args[0]), static_shape(call)
    total = low.emit("reduce", [data], shape, DType.BF16, attrs=_attrs(call), rescale=rescale)
    if not mean:
        return total
    return affine.lower_float(low, total, Affine().scaled(1.0 / _elements(call)).clipped(*low.bounds()))


PATTERNS = (
    Pattern("torq.reduce", "quantized", _quantized_graph, check_quantized, lower_quantized),
    Pattern("torq.bf16.reduce", "bf16", _float_graph, check_float, lower_float),
)
