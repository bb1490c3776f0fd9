"""Integers of constant operands: weights a channel, biases in units of input scale x weight scale, other tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from torq_byoc.frontend.graph import attribute
from torq_byoc.quantize import parameters, rules
from torq_byoc.quantize.kept_weights import kept_weights
from torq_byoc.quantize.observers import Range
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph
from torq_byoc.quantize.qdq.quantizable import Quantizable


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Weights of a layer as integers.

    Attributes:
        codes: int8.
        scale: float32, one a channel or 0-d.
        axis: of the channels, None where there is one scale.
        input_scale: of what the weights are multiplied with.
        bias: float values, None where there is none; those of the Add after a matrix product among them.
        shift: float64 [outputs] or 0-d: what rounding adds to the mean of the results, to be taken from the bias.
    """

    codes: np.ndarray
    scale: np.ndarray
    axis: int | None
    input_scale: np.float32
    bias: np.ndarray | None
    shift: np.ndarray

    def rounded_bias(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int32 codes and float32 scales of the layer's bias."""
        return parameters.bias(values - self.shift, self.input_scale, self.scale)


def layer_weights(
    form: Quantizable, graph: IntegerGraph, node: onnx.NodeProto, input_scale: np.float32
) -> LayerWeights:
    """The weights of a node of ``rules.WEIGHTED`` that stores them."""
    weight = node.input[1]
    values = numpy_helper.to_array(graph.constants[weight])
    axis = _channel_axis(node, values.ndim)
    bias = _bias_values(graph, node)
    floor = parameters.bias_floor(bias, input_scale)
    kept = kept_weights(form.stored.get(weight), values, axis, floor)
    codes, scale = kept or parameters.weights(values, axis, floor, input_scale)
    shift = _mean_shift(form, node, values, codes, scale, axis)
    return LayerWeights(codes, scale, axis, input_scale, bias, shift)


def rounded_constant(values: np.ndarray, dtype: str) -> tuple[np.ndarray, TensorQuantization]:
    """Codes of a constant that is no weight, one scale for all of it."""
    observed = Range(float(values.min(initial=0.0)), float(values.max(initial=0.0)))
    found = parameters.activation(observed, dtype)
    limits = np.iinfo(found.dtype)
    steps = np.rint(values.astype(np.float64) / float(found.scale)) + found.zero_point
    return np.clip(steps, limits.min, limits.max).astype(found.dtype), found


def _channel_axis(node: onnx.NodeProto, rank: int) -> int | None:
    """Axis of the channels that have scales of their own; None where all share one."""
    if rank <= 1:
        return None
    if node.op_type == "ConvTranspose" and attribute(node, "group", 1) > 1:
        return None  # its weights name only the channels within a group
    return rank - 1 if node.op_type == "MatMul" else rules.WEIGHTED[node.op_type]


def _bias_values(graph: IntegerGraph, node: onnx.NodeProto) -> np.ndarray | None:
    """Bias of a weighted node: its third input, or the constant of the Add that follows a MatMul."""
    name = node.input[2] if len(node.input) > 2 else ""
    reader = graph.absorbed(node.output[0])
    if not name and node.op_type == "MatMul" and reader is not None and reader.op_type == "Add":
        name = next(other for other in reader.input if other != node.output[0])
    if not name or name not in graph.constants:
        return None
    values = numpy_helper.to_array(graph.constants[name])
    return values.reshape(-1) if values.ndim <= 1 or values.size == max(values.shape) else None


def _mean_shift(
    form: Quantizable, node: onnx.NodeProto, values: np.ndarray, codes: np.ndarray, scale: np.ndarray, axis: int | None
) -> np.ndarray:
    """What rounding the weights adds to the mean of each output; 0 where that is not known."""
    shape = [-1 if position == axis else 1 for position in range(values.ndim)]
    rounded = codes.astype(np.float64) * scale.reshape(shape if scale.ndim else ()).astype(np.float64)
    shift = form.means.shift(node.name, values, rounded) if form.means and values.ndim > 1 else None
    return np.zeros(()) if shift is None else shift
