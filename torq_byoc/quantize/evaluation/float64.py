"""QDQ semantics in float64: the truth where onnxruntime's float32 rounds a near-tie the other way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference.op_run import OpRun

from torq_byoc.quantize.evaluation.evaluator import Arrays, Evaluator


class DequantizeLinear(OpRun):
    """(codes - zero point) * scale, per tensor or per axis."""

    op_domain = ""
    real: type[np.floating] = np.float64
    """The type of the arithmetic."""

    def _run(self, x, scale, zero_point=None, axis=1, block_size=0, output_dtype=None):  # noqa: ANN001, ANN202
        del block_size, output_dtype
        return (real_values(x, scale, zero_point, axis, self.real),)


class QuantizeLinear(OpRun):
    """Divide, round half to even, add the zero point, saturate; NaN, which the standard leaves open, is the zero point.

    So it is on the NPU and in the CPU part of a compiled model.
    """

    op_domain = ""
    real: type[np.floating] = np.float64
    """The type of the arithmetic."""

    def _run(  # noqa: ANN202
        self,
        x,  # noqa: ANN001
        scale,  # noqa: ANN001
        zero_point=None,  # noqa: ANN001
        axis=1,  # noqa: ANN001
        block_size=0,  # noqa: ANN001
        output_dtype=None,  # noqa: ANN001
        precision=None,  # noqa: ANN001
        saturate=1,  # noqa: ANN001
    ):
        del block_size, output_dtype, precision, saturate
        dtype = np.dtype(np.uint8) if zero_point is None else zero_point.dtype
        shape = _along(axis, scale, x)
        zero = 0 if zero_point is None else np.reshape(zero_point.astype(self.real), shape)
        limits = np.iinfo(dtype)
        codes = np.rint(x.astype(self.real, copy=False) / np.reshape(scale, shape).astype(self.real)) + zero
        if np.isnan(np.min(codes, initial=0.0)):
            codes = np.where(np.isnan(codes), zero, codes)
        return (np.clip(codes, limits.min, limits.max).astype(dtype),)


def real_values(
    codes: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None, axis: int, real: type[np.floating]
) -> np.ndarray:
    """What codes stand for, computed in a given type."""
    shape = _along(axis, scale, codes)
    zero = 0 if zero_point is None else np.reshape(zero_point.astype(real), shape)
    return (codes.astype(real) - zero) * np.reshape(scale, shape).astype(real)


def _along(axis: int, scale: np.ndarray, x: np.ndarray) -> tuple[int, ...]:
    if scale.size == 1:
        return (1,) * x.ndim
    return tuple(-1 if position == axis % x.ndim else 1 for position in range(x.ndim))


class Float64Evaluator:
    """Runs a QDQ model with float64 in place of every float32, many times."""

    def __init__(self, model: onnx.ModelProto) -> None:
        wide = _widened(model)
        self._constants = take_dequantized_constants(wide, np.float64)
        self._evaluator = Evaluator(wide, (DequantizeLinear, QuantizeLinear))

    def tensors(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Every tensor of one run by name."""
        return self._evaluator.tensors({**self._constants, **_wide_feeds(feeds)})

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs of one run by name."""
        return self._evaluator.outputs({**self._constants, **_wide_feeds(feeds)})


def evaluator_of(model: onnx.ModelProto) -> Evaluator | Float64Evaluator:
    """What runs a model: QDQ semantics in float64 for a quantized one, else float as it stands."""
    quantized = any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node)
    return Float64Evaluator(model) if quantized else Evaluator(model)


def float64_outputs(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs by name of a QDQ model whose real-valued arithmetic is float64 throughout."""
    return Float64Evaluator(model).outputs(feeds)


def _wide_feeds(feeds: Mapping[str, np.ndarray]) -> Arrays:
    return {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in feeds.items()}


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float32 constant, type and cast as float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    graph = wide.graph
    for tensor in graph.initializer:
        _widen(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return wide


def take_dequantized_constants(model: onnx.ModelProto, real: type[np.floating]) -> Arrays:
    """Values by name of dequantized constants, whose nodes are taken out of the model: every run would repeat them.

    Args:
        model: is changed.
        real: type of the values.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    values, others = {}, []
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear" or not all(name in constants for name in node.input):
            others.append(node)
            continue
        codes, scale, *zero_points = (numpy_helper.to_array(constants[name]) for name in node.input)
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
        values[node.output[0]] = real_values(codes, scale, zero_points[0] if zero_points else None, axis, real)
    model.graph.ClearField("node")
    model.graph.node.extend(others)
    return values


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
