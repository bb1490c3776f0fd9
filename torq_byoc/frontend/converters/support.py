"""What a converter gets to see of an ONNX node, and the small questions all converters ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, onnx_input

from torq_byoc.errors import ModelFileError, QuantizationError, ShapeError, UnsupportedOpError

DATA_DEPENDENT = "the size of its result depends on the data, and a compiled model has fixed shapes"


@dataclass(frozen=True)
class OnnxCall:
    """One ONNX node whose inputs are already Relax expressions.

    Attributes:
        builder: the block builder that the function is being written into.
        op_type: the ONNX operator name.
        name: the ONNX node name, unique in the model.
        inputs: Relax expressions; an omitted optional input is None.
        attrs: ONNX attributes as Python values (strings are bytes).
        opset: version of the default operator set.
    """

    builder: relax.BlockBuilder
    op_type: str
    name: str
    inputs: Sequence[relax.Expr | None]
    attrs: Mapping[str, Any]
    opset: int

    def input(self, index: int) -> relax.Expr | None:
        """The expression at a position, None when the node has no such input."""
        return self.inputs[index] if index < len(self.inputs) else None

    def data(self, index: int = 0) -> relax.Expr:
        """A mandatory input."""
        value = self.input(index)
        if value is None:
            raise ModelFileError(
                f"{self.op_type} lacks its input {index}",
                where=f"node {self.name!r}",
                remedy="export the model again; the file does not follow the ONNX operator definition",
            )
        return value

    def text(self, attr: str, default: str) -> str:
        """A string attribute."""
        value = self.attrs.get(attr, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def constant(self, index: int, attr: str | None = None) -> np.ndarray | None:
        """A parameter that is an input in newer operator sets and an attribute in older ones.

        Returns None when it is absent; raises UnsupportedOpError when it is only known at run time.
        """
        value = self.input(index)
        if value is None:
            return None if attr is None or attr not in self.attrs else np.asarray(self.attrs[attr])
        array = constant_array(value)
        if array is None:
            raise self.unsupported(f"its input {index} is computed at run time, and only a constant can be compiled")
        return array

    def stock(
        self, converter: type[OnnxOpConverter], replaced: Mapping[int, relax.Expr | None] | None = None
    ) -> relax.Expr:
        """What TVM's own converter makes of this node, with some of its inputs replaced.

        Raises:
            UnsupportedOpError: it refuses the node; in TVM, with whatever exception is at hand.
        """
        inputs = onnx_input([(replaced or {}).get(i, value) for i, value in enumerate(self.inputs)])
        try:
            return converter.get_converter(self.opset)(self.builder, inputs, dict(self.attrs), [{}, {}])
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), "")
            raise self.unsupported(f"TVM's importer refuses it: {type(error).__name__}: {first}") from error

    def unsupported(self, why: str) -> UnsupportedOpError:
        """The error for a form of the operator that has no Relax equivalent."""
        return UnsupportedOpError(
            f"{self.op_type} is used in a form that cannot be compiled",
            where=f"node {self.name!r} ({self.op_type})",
            why=why,
            remedy="simplify this node in the exporting framework, or fix the input shapes with --shape",
            details={"ops": [self.op_type], "nodes": [self.name]},
        )


def check_parameter(call: OnnxCall, what: str, shape: tuple[int, ...], data: tuple[int, ...]) -> None:
    """A zero point or scale of shape ``shape`` must broadcast against its tensor (QuantizationError)."""
    try:
        fits = np.broadcast_shapes(shape, data) == data
    except ValueError:
        fits = False
    if not fits:
        raise QuantizationError(
            f"a {what} does not fit its tensor",
            where=f"node {call.name!r} ({call.op_type})",
            why=f"it has shape {list(shape)}, the tensor {list(data)}",
            remedy="quantize the model again; its parameters are damaged",
        )


Converter = Callable[[OnnxCall], relax.Expr]


def constant_array(expr: relax.Expr | None) -> np.ndarray | None:
    """The value of a constant tensor or of a fully known shape, otherwise None."""
    if isinstance(expr, tvm.ir.GenericConst):
        return expr.value.numpy()
    if isinstance(expr, relax.ShapeExpr) and all(isinstance(v, tvm.tirx.IntImm) for v in expr.values):
        return np.array([int(v) for v in expr.values], np.int64)
    return None


def constant(array: np.ndarray) -> relax.Expr:
    """An array as a constant of its own element type; ``relax.const`` alone makes float32 of float64."""
    value = np.ascontiguousarray(array).reshape(np.shape(array))
    return relax.const(value, str(value.dtype))


def static_shape(expr: relax.Expr, call: OnnxCall) -> tuple[int, ...]:
    """The shape of an expression as plain ints; ShapeError when a dimension is not known."""
    shape = getattr(expr.ty, "shape", None)
    values = getattr(shape, "values", None)
    if values is None or not all(isinstance(v, tvm.tirx.IntImm) for v in values):
        raise ShapeError(
            f"{call.op_type} reads a tensor whose shape is not known",
            where=f"node {call.name!r}",
            why=f"its shape is {shape}",
            remedy="fix the input shapes with --shape NAME:1x3x224x224",
        )
    return tuple(int(v) for v in values)


def dtype_of(expr: relax.Expr) -> str:
    """Element type of a tensor expression, such as ``float32``."""
    return str(expr.ty.dtype)
