"""Which results of a model are stored, and where each of its stages keeps them.

A layer is what lies between stored tensors: a convolution with its relu is one.  It is keyed by the tensor of the
prepared model that it makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from torq_byoc.accuracy.layers.codes import Codes, codes_of
from torq_byoc.accuracy.layers.places import Place, Places
from torq_byoc.accuracy.stages import Stages
from torq_byoc.frontend.graph import constant_tensors

INPUT = "input"
"""In place of an operator's name: a tensor that the caller gives."""


@dataclass(frozen=True)
class Layer:
    """One stored result.

    Attributes:
        node: name of the node of the prepared model; the tensor's own for a model input.
        op: its operator; ``INPUT`` for a model input.
        tensor: name in the prepared model.
        precise: name of the float tensor in the precise model.
        codes: its quantization there; None where it stays float (in bf16, or on the CPU).
        read_as: what its codes count for: ``codes``, but where they are a model output as that dequantizes them.
        place: where the NPU's operator graphs have it; None where it is not to be seen (on the CPU, or fused away).
        in_bf16: whether the NPU computes it in bf16, be its result codes or floats.
        operands: for a concatenation its operands as (name, first, end) along ``axis``.
        axis: of the channels; of the operands for a concatenation.
    """

    node: str
    op: str
    tensor: str
    precise: str
    codes: Codes | None
    read_as: Codes | None
    place: Place | None
    in_bf16: bool
    operands: tuple[tuple[str, int, int], ...]
    axis: int


def layers_of(stages: Stages) -> tuple[Layer, ...]:
    """The layers of a model in the order of the precise model's nodes, inputs first."""
    reader = _Reader(stages)
    return (*reader.inputs(), *reader.results())


class _Reader:
    """Reads layers off the stages of a model."""

    def __init__(self, stages: Stages) -> None:
        self._graph = stages.precise.graph
        self._quantized = _quantizations(stages.precise)
        self._outputs = _output_quantizations(stages.precise)
        self._floats = _float_tensors(stages.precise)
        self._fused = _quantized_only(self._graph, set(self._quantized))
        self._prepared = {node.name: node for node in stages.prepared.graph.node}
        self._shapes = shapes_of(stages.prepared)
        self._places = Places(stages.graphs)

    def inputs(self) -> Iterator[Layer]:
        """Model inputs that are quantized."""
        for value in self._graph.input:
            name = value.name
            if name in self._quantized and name in self._floats:
                axis = 1 if len(self._shapes[name]) > 1 else 0
                codes = self._quantized[name]
                yield Layer(name, INPUT, name, name, codes, codes, None, False, (), axis)

    def results(self) -> Iterator[Layer]:
        """Results of the prepared model's nodes that the precise model stores."""
        for node in self._graph.node:
            if node.op_type not in ("QuantizeLinear", "DequantizeLinear") and node.name in self._prepared:
                for position, name in enumerate(node.output):
                    layer = self._result(node, position) if name in self._floats else None
                    # Operators of a float island may stand alone on the NPU though codes are all they lead to.
                    if layer and (name not in self._fused or layer.place):
                        yield layer

    def _result(self, node: onnx.NodeProto, position: int) -> Layer:
        own, name = self._prepared[node.name], node.output[position]
        tensor = own.output[position] if position < len(own.output) else name
        codes, shape = self._quantized.get(name), self._shapes.get(tensor, ())
        # Graphs name the node that a tensor came from, not which of its results it is.
        place = self._places.find(node.name, shape, codes) if len(own.output) == 1 else None
        return Layer(
            node=node.name,
            op=node.op_type,
            tensor=tensor,
            precise=name,
            codes=codes,
            read_as=self._outputs.get(codes.name, codes) if codes else None,
            place=place,
            in_bf16=place is not None and (codes is None or self._places.in_bf16(place)),
            operands=tuple(_operands(own, self._shapes, len(shape))),
            axis=_channel_axis(own, len(shape)),
        )


def _quantizations(model: onnx.ModelProto) -> dict[str, Codes]:
    """Per-tensor quantizations by the float tensor that is quantized (its first one)."""
    constants = constant_tensors(model.graph)
    found: dict[str, Codes] = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in found:
            codes = codes_of(node, node.output[0], constants)
            if codes:
                found[node.input[0]] = codes
    return found


def _output_quantizations(model: onnx.ModelProto) -> dict[str, Codes]:
    """By name of codes how the model outputs that are made of them read them."""
    constants, outputs = constant_tensors(model.graph), {value.name for value in model.graph.output}
    ends = [node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.output[0] in outputs]
    found = {node.input[0]: codes_of(node, node.input[0], constants) for node in ends}
    return {name: codes for name, codes in found.items() if codes}


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    return {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}


def _quantized_only(graph: onnx.GraphProto, quantized: set[str]) -> set[str]:
    """Float tensors between a layer's operators: not quantized themselves, but on the way to nothing but quantizations.

    In a model without quantization there are none.
    """
    if not quantized:
        return set()
    outputs = {value.name for value in graph.output}
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


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Static shapes by tensor name."""
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
