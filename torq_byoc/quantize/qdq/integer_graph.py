"""What the quantizer knows of a float graph: which operators have an integer form, and what that makes of tensors."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from torq_byoc.quantize import rules
from torq_byoc.quantize.element_functions import inside_functions
from torq_byoc.quantize.precision_plan import PrecisionPlan


class IntegerGraph:
    """A float graph under a precision plan.

    Args:
        model: prepared, its weights floats.
        plan: types of tensors, and operators that stay float although they have an integer form.
        floats: names of more of these.

    Attributes:
        nodes: of the graph, in order.
        constants: stored tensors by name.
        outputs: names of the graph's outputs.
        producer: the node that makes a tensor.
        inside: tensors that are not rounded, for they lie between the operators of an element-wise function.
    """

    def __init__(self, model: onnx.ModelProto, plan: PrecisionPlan | None = None, floats: Collection[str] = ()) -> None:
        self.plan = plan or PrecisionPlan()
        self._kept_float = {*self.plan.nodes, *floats}
        graph = model.graph
        self.nodes = graph.node
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.outputs = {value.name for value in graph.output}
        self.producer = {name: node for node in graph.node for name in node.output}
        self._values = (*graph.value_info, *graph.input, *graph.output)
        self._floats = {v.name for v in self._values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._computed = self._depending_on({value.name for value in graph.input})
        self._infinite = self._infinite_operands()
        self.inside = self._inside_functions()

    @property
    def names(self) -> set[str]:
        """Of all tensors."""
        return {*self.constants, *(value.name for value in self._values), *self._readers, *self.producer}

    def has_integer_form(self, node: onnx.NodeProto) -> bool:
        """Whether a node computes with integers."""
        standard = node.op_type in rules.QUANTIZED and node.domain in ("", "ai.onnx")
        if not standard or node.name in self._kept_float:
            return False
        if not all(name in self._floats for name in node.output if name):
            return False
        if node.op_type not in rules.TWO_OPERANDS:
            return node.input[0] in self._computed
        return any(name in self._computed for name in node.input) and self._infinite.isdisjoint(node.input)

    def integer_nodes(self) -> list[onnx.NodeProto]:
        """Nodes that get an integer form, in graph order."""
        return [node for node in self.nodes if self.has_integer_form(node)]

    def integer_producer(self, name: str) -> onnx.NodeProto | None:
        """The node with an integer form that makes a tensor, or None."""
        node = self.producer.get(name)
        return node if node is not None and self.has_integer_form(node) else None

    def sole_integer_reader(self, name: str) -> onnx.NodeProto | None:
        """The only node that reads a tensor, if it has an integer form; None for graph outputs."""
        readers = self._readers.get(name, [])
        alone = len(readers) == 1 and name not in self.outputs and self.has_integer_form(readers[0])
        return readers[0] if alone else None

    def absorbed(self, name: str) -> onnx.NodeProto | None:
        """The node that shares the requantization of ``name``'s producer: a clamp, or a dense layer's bias."""
        node, reader = self.integer_producer(name), self.sole_integer_reader(name)
        if node is None or reader is None:
            return None
        if node.op_type in rules.ABSORBING and reader.op_type in rules.CLAMPS and reader.input[0] == name:
            return reader
        return reader if node.op_type == "MatMul" and self._is_bias_add(reader, name) else None

    def to_observe(self, absorbed: bool = False) -> list[str]:
        """Float tensors that will be quantized, in graph order.

        Args:
            absorbed: also those that are not because another operator's requantization does for them.
        """
        names: dict[str, None] = {}
        for node in self.integer_nodes():
            activations = [name for name in node.input if name in self._floats and name not in self.constants]
            for name in (*activations, *node.output):
                if name and (absorbed or (self.absorbed(name) is None and name not in self.inside)):
                    names[name] = None
        return list(names)

    def leader(self, name: str) -> str:
        """The tensor whose quantization a tensor takes because its values are taken from there; else itself."""
        node = self.integer_producer(name)
        while node is not None and node.op_type in rules.SAME_SCALE and node.input[0] not in self.constants:
            name = node.input[0]
            node = self.integer_producer(name)
        return name

    def _depending_on(self, found: set[str]) -> set[str]:
        """Tensors that change from one inference to the next; the rest (a table too large to fold) are constants."""
        for node in self.nodes:
            if any(name in found for name in node.input):
                found.update(node.output)
        return found

    def _infinite_operands(self) -> set[str]:
        """Constants of element-wise operators that no scale can hold."""
        operands = {name for node in self.nodes if node.op_type in rules.TWO_OPERANDS for name in node.input}
        stored = {name: numpy_helper.to_array(self.constants[name]) for name in operands & self.constants.keys()}
        return {name for name, value in stored.items() if value.dtype.kind == "f" and not np.isfinite(value).all()}

    def _inside_functions(self) -> frozenset[str]:
        """Tensors between the operators of element-wise functions; those with results of 16 bits are none."""
        shapes = {v.name: tuple(dim.dim_value for dim in v.type.tensor_type.shape.dim) for v in self._values}

        def is_apart(node: onnx.NodeProto) -> bool:
            wide = any(self.plan.dtype_of(name) == "int16" for name in node.output)
            return wide or not self.has_integer_form(node) or any(self.absorbed(name) is node for name in node.input)

        return inside_functions(self.nodes, self.constants, shapes, is_apart, self.outputs)

    def _is_bias_add(self, node: onnx.NodeProto, matmul: str) -> bool:
        other = [name for name in node.input if name != matmul]
        if node.op_type != "Add" or len(other) != 1 or other[0] not in self.constants:
            return False
        weight = self.producer[matmul].input[1]
        return weight in self.constants and list(self.constants[other[0]].dims) == [self.constants[weight].dims[-1]]
