"""What stayed on the CPU, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import Call

from torq_byoc.frontend import onnx_node_name
from torq_byoc.relay_patterns.view import constant_value, dtype_of, op_name, shape_of

BOUNDARY = "float input/output boundary"
_QUANTIZATION = ("relax.quantize", "relax.dequantize")


@dataclass(frozen=True)
class CpuOp:
    """An operator that runs on the CPU: its ONNX node, its name, the reason, and its multiply-accumulates."""

    node: str
    op: str
    reason: str
    macs: int = 0


def cpu_ops(
    main: relax.Function, partitions: Sequence[str], refusals: Mapping[str, str], precision: str
) -> tuple[CpuOp, ...]:
    """Every operator call left in ``main``, in order.

    Args:
        main: the function after partitioning.
        partitions: global symbols of the partitions; calls of these are no CPU operators.
        refusals: reasons by ``call_key``.
        precision: the arithmetic of the module.
    """
    found: list[CpuOp] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, Call) and not (isinstance(expr.op, tvm.ir.GlobalVar) and expr.op.name_hint in partitions):
            node = onnx_node_name(expr) or ""
            reason = refusals.get(call_key(expr)) or _reason(expr, precision)
            found.append(CpuOp(node, _short_name(expr), reason, macs(expr)))

    relax.analysis.post_order_visit(main, visit)
    return tuple(found)


def call_key(call: Call) -> str:
    """Identifies a call across the passes of partitioning: operator, ONNX node and result type."""
    return f"{_short_name(call)}|{onnx_node_name(call) or ''}|{call.ty}"


def macs(call: Call) -> int:
    """Multiply-accumulates of a convolution or matrix product; 0 for other operators and dynamic shapes."""
    name, result = op_name(call).removeprefix("relax."), shape_of(call)
    operands = [shape_of(argument) for argument in call.args[:2] if hasattr(argument, "ty")]
    if result is None or len(operands) < 2 or None in operands:
        return 0
    data, weight = operands
    assert data is not None and weight is not None
    if name == "matmul":
        return math.prod(result) * data[-1]
    if name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
        return math.prod(result) * math.prod(weight[1:])
    if name in ("nn.conv1d_transpose", "nn.conv2d_transpose"):
        return math.prod(data) * math.prod(weight[1:])
    return 0


def _short_name(call: Call) -> str:
    name = op_name(call)
    if name == "relax.call_tir":
        return str(call.args[0].name_hint)
    return name.removeprefix("relax.") or str(getattr(call.op, "name_hint", "call"))


def _reason(call: Call, precision: str) -> str:
    name = op_name(call)
    if name in _QUANTIZATION:
        inner = constant_value(call.args[0]) is not None
        return "it belongs to an operator on the CPU" if inner else BOUNDARY
    if name == "relax.call_tir" or not name:
        return "no NPU operator for this function"
    if precision == "quantized" and dtype_of(call).startswith("float"):
        return "float operator without quantized inputs and a quantized result"
    if dtype_of(call) in ("int64", "int32", "bool"):
        return f"its result has type {dtype_of(call)}, which the NPU path does not carry"
    return "no NPU pattern for this operator"
