"""The part of a float model that a cut of a quantized model was made from: what damaged scales show against.

The quantized model's cut gets the float model's values as operands, and its result is held against what the float
model's part makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from torq_byoc.accuracy.cutter.window import Window
from torq_byoc.accuracy.layers.layer_check import LayerCheck
from torq_byoc.accuracy.layers.layers import Layer
from torq_byoc.accuracy.stages import Stages
from torq_byoc.frontend.graph import constant_tensors, producers, subgraphs
from torq_byoc.quantize.evaluation.evaluator import Arrays


class FloatSide:
    """The float model beside a quantized one, on one sample.

    Args:
        stages: of a model that is held against its float model.
        feeds: the sample.

    Attributes:
        values: what the float model has for the quantized model's tensors, by their names: codes as codes.
    """

    def __init__(self, stages: Stages, feeds: Mapping[str, np.ndarray]) -> None:
        assert stages.float_model is not None
        layers = LayerCheck(stages)
        wanted, floats = layers.wanted(feeds), layers.float_names()
        self._models = [_Model(one) for one in (stages.float_model.prepared, stages.float_model.given)]
        self._names: dict[str, str] = {}
        self.values: Arrays = {}
        for layer in layers.layers:
            if layer.tensor in floats:
                for name, is_code in _stored(layer, stages.precise):
                    value = wanted[layer.tensor]
                    self._names[name] = floats[layer.tensor]
                    self.values[name] = layer.codes.quantize(value) if is_code and layer.codes else value

    def part(self, window: Window) -> onnx.ModelProto | None:
        """The float model's form of a window, with the same inputs and outputs; None where it has no such part."""
        ends = (*window.model.graph.input, *window.model.graph.output)
        found = {value.name: self._names.get(window.values.get(value.name, value.name), "") for value in ends}
        different = set(found.values()) - {""}
        if len(different) < len(ends) or any(value.type.tensor_type.elem_type != TensorProto.FLOAT for value in ends):
            return None
        made = (model.part(found, window.model.graph) for model in self._models)
        return next((part for part in made if part is not None), None)


def _stored(layer: Layer, precise: onnx.ModelProto) -> list[tuple[str, bool]]:
    """Names under which a layer's result stands in the quantized model, and whether that is codes."""
    names = [(layer.precise, False)]
    if layer.codes:
        nodes = precise.graph.node
        back = [n.output[0] for n in nodes if n.op_type == "DequantizeLinear" and n.input[0] == layer.codes.name]
        names += [(layer.codes.name, True), *((name, False) for name in back)]
    return names


@dataclass(eq=False)
class _Model:
    """A float model from which parts are taken."""

    model: onnx.ModelProto

    def __post_init__(self) -> None:
        self._makers, self._constants = producers(self.model.graph), constant_tensors(self.model.graph)

    def part(self, places: Mapping[str, str], ends: onnx.GraphProto) -> onnx.ModelProto | None:
        """What makes the outputs of a graph of its inputs; None where more is needed for them.

        Args:
            places: tensors of this model by the names of the inputs and outputs that they stand for.
            ends: has these inputs and outputs.
        """
        given = {places[value.name] for value in ends.input}
        chosen, read = self._between(given, [places[value.name] for value in ends.output])
        if not given <= read:
            return None
        new = {found: name for name, found in places.items()}
        nodes = [_renamed(node, new) for node in self.model.graph.node if node.output[0] in chosen]
        constants = [_called(self._constants[name], _name(name, new)) for name in sorted(read & set(self._constants))]
        graph = helper.make_graph(nodes, "float", ends.input, ends.output, constants)
        imports, version = list(self.model.opset_import), self.model.ir_version
        return helper.make_model(graph, opset_imports=imports, ir_version=version, functions=self.model.functions)

    def _between(self, given: set[str], wanted: list[str]) -> tuple[set[str], set[str]]:
        """Nodes between tensors, by their first results, and all that they read; nothing where more is needed."""
        chosen: set[str] = set()
        read: set[str] = set()
        waiting = list(wanted)
        while waiting:
            name = waiting.pop()
            maker = self._makers.get(name)
            if maker is None or any(subgraphs(maker)):
                return set(), set()
            if maker.output[0] in chosen:
                continue
            chosen.add(maker.output[0])
            names = {one for one in maker.input if one}
            read |= names
            waiting += names - given - set(self._constants)
        return chosen, read


def _renamed(node: onnx.NodeProto, new: Mapping[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for names in (copy.input, copy.output):
        names[:] = [_name(name, new) for name in names]
    return copy


def _name(name: str, new: Mapping[str, str]) -> str:
    """A tensor's name in the part; what is inside must not be called like an end."""
    return new.get(name, f"{name}__float") if name else ""


def _called(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
