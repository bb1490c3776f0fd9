"""Which results of a model are stored, and where each of its stages keeps them.

A layer is what lies between stored tensors: a convolution with its relu is one.  It is keyed by the tensor of the prepared
model that it makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from torq_byoc.accuracy.stages import Stages
from torq_byoc.frontend.graph import constant_tensors, producers
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.dtypes import DType

INPUT = "input"
"""In place of an operator's name: a tensor that the caller gives."""


@dataclass(frozen=True, eq=False)
class Codes:
    """How a tensor is quantized: value = (code - zero_point) * scale, per tensor.

    Attributes:
        name: of the tensor of codes in the quantized model.
    """

    name: str
    scale: float
    zero_point: int
    dtype: np.dtype

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest code."""
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    def quantize(self, values: np.ndarray) -> np.ndarray:
        """Codes of real values: rounded half to even, saturated."""
        low, high = self.limits
        steps = np.rint(values.astype(np.float64) / self.scale) + self.zero_point
        return np.clip(np.nan_to_num(steps, posinf=high, neginf=low), low, high).astype(self.dtype)

    def dequantize(self, codes: np.ndarray) -> np.ndarray:
        """Real values of codes, in float64."""
        return (codes.astype(np.float64) - self.zero_point) * self.scale


@dataclass(frozen=True)
class Place:
    """A tensor of an operator graph: symbol of the partition, and name."""

    symbol: str
    tensor: str


@dataclass(frozen=True, eq=False)
class Layer:
    """One stored result.

    Attributes:
        node: name of the node of the prepared model; the tensor's own for a model input.
        op: its operator; ``INPUT`` for a model input.
        tensor: name in the prepared model.
        precise: name of the float tensor in the precise model.
        codes: its quantization there; None where it stays float (in bf16, or on the CPU).
        place: where the NPU's operator graphs have it; None where it is not to be seen (on the CPU, or fused away).
        operands: for a concatenation its operands as (name, first, end) along ``axis``.
        axis: of the channels; of the operands for a concatenation.
    """

    node: str
    op: str
    tensor: str
    precise: str
    codes: Codes | None
    place: Place | None
    operands: tuple[tuple[str, int, int], ...]
    axis: int


def layers_of(stages: Stages) -> tuple[Layer, ...]:
    """The layers of a model in the order of the precise model's nodes, inputs first."""
    precise, prepared = stages.precise.graph, stages.prepared.graph
    quantized = _quantizations(stages.precise)
    floats = _float_tensors(stages.precise)
    fused = _quantized_only(precise, set(quantized), {value.name for value in precise.output})
    results = {node.name: node for node in prepared.node}
    shapes = _shapes(stages.prepared)
    places = _Places(stages.graphs)
    stored: list[Layer] = []
    for value in precise.input:
        if value.name in quantized and value.name in floats:
            stored.append(_input(value.name, quantized[value.name], len(shapes[value.name])))
    for node in precise.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") or node.name not in results:
            continue
        for position, name in enumerate(node.output):
            if not name or name not in floats or name in fused:
                continue
            own = results[node.name]
            tensor = own.output[position] if position < len(own.output) else name
            codes = quantized.get(name)
            rank = len(shapes.get(tensor, ()))
            axis = _channel_axis(own, rank)
            stored.append(
                Layer(
                    node.name,
                    node.op_type,
                    tensor,
                    name,
                    codes,
                    places.find(node.name, shapes.get(tensor), codes),
                    tuple(_operands(own, shapes, rank)),
                    axis,
                )
            )
    return tuple(stored)


def _input(name: str, codes: Codes, rank: int) -> Layer:
    return Layer(name, INPUT, name, name, codes, None, (), 1 if rank > 1 else 0)


def _quantizations(model: onnx.ModelProto) -> dict[str, Codes]:
    """Per-tensor quantizations by the float tensor that is quantized (its first one)."""
    constants = constant_tensors(model.graph)
    found: dict[str, Codes] = {}
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in found or node.input[1] not in constants:
            continue
        scale = numpy_helper.to_array(constants[node.input[1]])
        if scale.size != 1:
            continue
        zero = np.zeros((), np.uint8)
        if len(node.input) > 2 and node.input[2]:
            zero = numpy_helper.to_array(constants[node.input[2]])
        found[node.input[0]] = Codes(node.output[0], float(scale.reshape(())), int(zero.reshape(())), zero.dtype)
    return found


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    return {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}


def _quantized_only(graph: onnx.GraphProto, quantized: set[str], outputs: set[str]) -> set[str]:
    """Float tensors between a layer's operators: not quantized themselves, but on the way to nothing but quantizations.

    In a model without quantization there are none.
    """
    if not quantized:
        return set()
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    fused: set[str] = set()
    for node in reversed(graph.node):
        for name in node.output:
            readers = users.get(name, [])
            if name in quantized or name in outputs or not readers:
                continue
            if all(_leads_to_codes(reader, quantized, fused) for reader in readers):
                fused.add(name)
    return fused


def _leads_to_codes(node: onnx.NodeProto, quantized: set[str], fused: set[str]) -> bool:
    return all(name in quantized or name in fused for name in node.output if name)


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    found = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    return {**found, **{tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}}


_LAST_AXIS = frozenset({"Gemm", "MatMul", "LayerNormalization", "Softmax", "LogSoftmax"})


def _channel_axis(node: onnx.NodeProto, rank: int) -> int:
    """Along which a result's channels lie: the operands' axis of a concatenation, else as its operator has it."""
    if node.op_type == "Concat":
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        return axis % max(rank, 1)
    if rank < 2:
        return 0
    return rank - 1 if node.op_type in _LAST_AXIS or rank == 3 else 1


def _operands(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], rank: int) -> Iterator[tuple[str, int, int]]:
    if node.op_type != "Concat":
        return
    axis, first = _channel_axis(node, rank), 0
    for name in node.input:
        extent = shapes[name][axis]
        yield name, first, first + extent
        first += extent


class _Places:
    """Finds results of ONNX nodes in operator graphs."""

    def __init__(self, graphs: Mapping[str, OpGraph]) -> None:
        self._graphs = graphs
        self._made: dict[str, list[Place]] = {}
        for symbol, graph in graphs.items():
            for node in graph.nodes:
                self._made.setdefault(node.origin.rsplit("+", 1)[-1], []).append(Place(symbol, node.output))

    def find(self, node: str, shape: tuple[int, ...] | None, codes: Codes | None) -> Place | None:
        """The last tensor that a node was the last one to contribute to and that has its result's form and codes."""
        for place in reversed(self._made.get(node, [])):
            info = self._graphs[place.symbol].tensors[place.tensor]
            if shape is None or info.shape != shape:
                continue
            if codes is None and info.dtype is DType.BF16:
                return place
            if codes is not None and info.dtype.numpy == codes.dtype and info.zero_point == codes.zero_point:
                if info.scale is not None and np.isclose(info.scale, codes.scale, rtol=1e-6, atol=0.0):
                    return place
        return None


def producers_of(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor name -> name of the node that makes it."""
    return {name: node.name for name, node in producers(model.graph).items()}
