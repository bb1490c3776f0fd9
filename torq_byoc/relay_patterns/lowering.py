"""The context in which a pattern emits its NPU operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from tvm import relax
from tvm.ir import Call

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.arithmetic import UNBOUNDED, Bounds, requantization
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.legality import int_attr
from torq_byoc.relay_patterns.quant_params import QuantParams
from torq_byoc.relay_patterns.view import Operand, View, op_name, static_shape


class Lowering:
    """One group on its way into the operator graph.

    Attributes:
        builder: receives tensors and nodes.
        config: the machine.
        view: the group.
        origin: ONNX node name(s) of the group.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        config: NpuConfig,
        view: View,
        tensors: Mapping[relax.Var, str],
        origin: str,
    ) -> None:
        self.builder = builder
        self.config = config
        self.view = view
        self.origin = origin
        self._tensors = tensors

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the group's result."""
        return static_shape(self.view.root)

    @property
    def out(self) -> QuantParams | None:
        """Quantization of the group's result; None in bf16."""
        quant = self.view.output()
        return quant.params() if quant is not None else None

    @property
    def emitter(self) -> Emitter:
        """The group as the composite operators want it."""
        return Emitter(self.builder, self.origin)

    def tensor(self, expr: relax.Expr) -> str:
        """Name of a source tensor: a variable from outside, or a constant (floats become bf16)."""
        operand = self.view.operand(expr)
        if operand.constant is None:
            return self._tensors[operand.source]
        quant = operand.quant
        if quant is None or not quant.per_tensor:
            return self.constant(operand.constant)
        params = quant.params()
        return self.builder.constant(
            operand.constant, f"{self.origin}_const", scale=params.scale, zero_point=params.zero_point
        )

    def constant(self, value: np.ndarray) -> str:
        """Add a constant; floats become bf16."""
        if value.dtype.kind == "f":
            value = value.astype(ml_dtypes.bfloat16)
        return self.builder.constant(np.ascontiguousarray(value), f"{self.origin}_const")

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        out: QuantParams | DType | None = None,
        *,
        attrs: Mapping[str, Any] | None = None,
        rescale: Rescale | None = None,
    ) -> str:
        """Append a node; its type and quantization are ``out``'s, or those of its first input."""
        if out is None:
            info = self.builder.info(inputs[0])
            dtype, scale, zero_point = info.dtype, info.scale, info.zero_point
        elif isinstance(out, DType):
            dtype, scale, zero_point = out, None, 0
        else:
            dtype, scale, zero_point = out.dtype, out.scale, out.zero_point
        return self.builder.emit(
            op,
            inputs,
            shape,
            dtype,
            attrs=attrs,
            rescale=rescale,
            scale=scale,
            zero_point=zero_point,
            origin=self.origin,
            hint=self.origin or op,
        )

    def requantize(self, tensor: str, source: QuantParams, out: QuantParams) -> str:
        """The tensor in other codes; itself when they are the same."""
        if source == out:
            return tensor
        rescale = requantization(source.scale / out.scale, -source.zero_point, out)
        return self.emit("act", [tensor], self.builder.info(tensor).shape, out, rescale=rescale)

    def centered(self, tensor: str, source: QuantParams) -> tuple[str, QuantParams]:
        """The tensor with zero point 0, as int16 when it has another one now.

        Raises:
            QuantizationError: it is of 16 bits and has another zero point.
        """
        if source.zero_point == 0:
            return tensor, source
        out = source.centred()
        return self.requantize(tensor, source, out), out

    def reshaped(self, tensor: str, shape: Sequence[int]) -> str:
        """The tensor under another shape of as many elements; itself when it has that shape."""
        if self.builder.info(tensor).shape == tuple(shape):
            return tensor
        return self.emit("reshape", [tensor], shape)

    def bounds(self) -> Bounds:
        """Limits of the relu or clip in the group."""
        for call in self.view.calls():
            limits = clip_bounds(self.view, call)
            if limits is not None:
                return limits
        return UNBOUNDED


def clip_bounds(view: View, call: Call) -> Bounds | None:
    """Limits that a relu or clip applies; None for other operators."""
    name = op_name(call)
    if name == "relax.nn.relu":
        return 0.0, float("inf")
    if name == "relax.clip":
        return scalar(call.args[1]), scalar(call.args[2])
    return None


def scalar(value: Any) -> float:
    """A Relax scalar argument (number, constant or prim value) as a float."""
    if hasattr(value, "value") and not hasattr(value.value, "numpy"):
        return float(value.value)
    return float(value.value.numpy()) if hasattr(value, "value") else float(value)


def ints(values: Any) -> tuple[int, ...]:
    """A Relax array of integers as a tuple."""
    return tuple(int_attr(value) for value in values)


def quant_of(operand: Operand) -> QuantParams:
    """Quantization of an operand that legality has shown to be quantized per tensor."""
    assert operand.quant is not None, "the operand is not quantized"
    return operand.quant.params()
