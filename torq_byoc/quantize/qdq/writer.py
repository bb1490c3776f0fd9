"""Goes through the nodes of a float model and writes them with their quantize and dequantize nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from torq_byoc.errors import QuantizationError
from torq_byoc.quantize import rules
from torq_byoc.quantize.observers import Range
from torq_byoc.quantize.parameters import TensorQuantization
from torq_byoc.quantize.precision_plan import PrecisionPlan
from torq_byoc.quantize.qdq.builder import QdqBuilder
from torq_byoc.quantize.qdq.integer_graph import IntegerGraph
from torq_byoc.quantize.qdq.operands import LayerWeights, layer_weights, rounded_constant
from torq_byoc.quantize.qdq.planned_ranges import Ranges, planned_ranges
from torq_byoc.quantize.qdq.quantizable import Quantizable
from torq_byoc.quantize.qdq.scales import quantization_of_tensors


def write_plan(form: Quantizable, ranges: Ranges, plan: PrecisionPlan) -> onnx.ModelProto:
    """The model quantized as a plan says (see ``written``)."""
    return written(form, ranges, plan)[0]


def written(
    form: Quantizable, ranges: Ranges, plan: PrecisionPlan
) -> tuple[onnx.ModelProto, dict[str, TensorQuantization]]:
    """The model quantized as a plan says, and the quantization of every tensor.

    Args:
        form: the model.
        ranges: by every calibrator of the plan, of every tensor that is quantized where no operator stays float.
        plan: numbers of tensors and operators.

    Raises:
        QuantizationError: the plan is not for this model.
    """
    whole, writer = form.graph(), QdqWriter(form, plan)
    names = dict.fromkeys((*whole.to_observe(), *writer.graph.to_observe()))
    plan.check_names(names, [node.name for node in whole.integer_nodes()])
    _check_followers(whole, plan)

    result = writer.write(planned_ranges(form, ranges, plan, writer.graph.to_observe()))
    return result, writer.quantized


def _check_followers(graph: IntegerGraph, plan: PrecisionPlan) -> None:
    """Refuse precisions of tensors that have none of their own.

    Raises:
        QuantizationError: the plan names one.
    """
    for name in plan.tensors:
        if graph.leader(name) != name:
            raise QuantizationError(
                "the precision plan names a tensor without a quantization of its own",
                where=name,
                why=f"its values are those of {graph.leader(name)}, and so are its codes",
                remedy=f"name {graph.leader(name)} instead",
            )


class QdqWriter:
    """Writes one model once; ranges may be varied afterwards (``parameters_for``).

    Args:
        form: the model.
        plan: types of tensors, and operators that stay float although they have an integer form.

    Attributes:
        graph: what is known of the model under the plan.
        quantized: parameters of every tensor that has been written.
    """

    def __init__(self, form: Quantizable, plan: PrecisionPlan | None = None) -> None:
        self.graph = form.graph(plan)
        self.quantized: dict[str, TensorQuantization] = {}
        self._form = form
        self._builder = QdqBuilder(self.graph.names)
        self._awaiting_bias: dict[str, LayerWeights] = {}

    def write(self, ranges: Mapping[str, Range]) -> onnx.ModelProto:
        """The quantized model, given ranges for every tensor of ``graph.to_observe``."""
        model = self._form.model
        found = quantization_of_tensors(self.graph, ranges)
        for value in model.graph.input:
            self._quantize_if_read(value.name, found)
        for node in model.graph.node:
            if self.graph.has_integer_form(node):
                self._integer_node(node, found)
            else:
                self._float_node(node)
            for name in node.output:
                self._quantize_if_read(name, found)
        for value in model.graph.output:
            self._restore_output(value.name)
        return self._builder.model(model)

    def parameters_for(self, ranges: Mapping[str, Range]) -> dict[str, np.ndarray]:
        """What other ranges would make of the written model's scales and zero points, by their names there."""
        changed = {}
        for name, quantization in quantization_of_tensors(self.graph, ranges).items():
            scale, zero_point = self._builder.parameters(name, quantization)
            changed[scale] = np.array(quantization.scale, np.float32)
            changed[zero_point] = np.array(quantization.zero_point, quantization.dtype)
        return changed

    def _quantize_if_read(self, name: str, found: Mapping[str, TensorQuantization]) -> None:
        if name in found:
            self.quantized[name] = found[name]
            self._builder.quantize(name, self._float_name(name), found[name])

    def _float_name(self, name: str) -> str:
        """Float results that become graph outputs again move aside for the dequantized tensor."""
        return self._builder.own(f"{name}_float") if self._leaves_as_codes(name) else name

    def _leaves_as_codes(self, name: str) -> bool:
        """Whether a tensor is a graph output that is made in integers; what is made in float leaves as it is."""
        return name in self.graph.outputs and self.graph.integer_producer(name) is not None

    def _dequantize(self, name: str, reader: str) -> str:
        """A float copy of a quantized tensor for one reader."""
        return self._builder.dequantize(name, self.quantized[name], self._builder.own(f"{name}_for_{reader}"))

    def _float_node(self, node: onnx.NodeProto) -> None:
        """A node that stays float; it reads the model's inputs as they come, not what became of them on the NPU."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        label = node.name or node.output[0]
        for position, name in enumerate(node.input):
            if name in self.quantized and self.graph.integer_producer(name) is not None:
                copy.input[position] = self._dequantize(name, f"{label}_{position}")
            elif name in self.quantized:
                copy.input[position] = self._float_name(name)
        self._append(copy)

    def _append(self, node: onnx.NodeProto) -> None:
        for position, name in enumerate(node.output):
            node.output[position] = self._float_name(name)
        self._builder.nodes.append(node)

    def _integer_node(self, node: onnx.NodeProto, found: Mapping[str, TensorQuantization]) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        label = node.name or node.output[0]
        if node.op_type in rules.WEIGHTED and node.input[1] in self.graph.constants:
            self._weighted(node, copy, label)
        else:
            for position, name in enumerate(node.input):
                if name in self.quantized:
                    copy.input[position] = self._dequantize(name, f"{label}_{position}")
                elif name in self._awaiting_bias or name in self.graph.inside:
                    continue
                elif self._is_data_constant(node, position):
                    copy.input[position] = self._constant_operand(node, position, label, found)
        self._append(copy)

    def _is_data_constant(self, node: onnx.NodeProto, position: int) -> bool:
        stored = self.graph.constants.get(node.input[position])
        if stored is None or stored.data_type != TensorProto.FLOAT:
            return False
        return node.op_type in rules.TWO_OPERANDS or node.op_type in ("MatMul", "Gemm", "Concat")

    def _constant_operand(
        self, node: onnx.NodeProto, position: int, label: str, tensors: Mapping[str, TensorQuantization]
    ) -> str:
        """The int32 bias of a dense layer, or a per-tensor integer constant as wide as its peers."""
        name = node.input[position]
        values = numpy_helper.to_array(self.graph.constants[name])
        dense = next((other for other in node.input if other in self._awaiting_bias), None)
        if dense is not None:
            codes, scale = self._awaiting_bias[dense].rounded_bias(values)
            return self._builder.dequantized_constant(f"{name}_for_{label}", codes, scale, 0)
        peers = {tensors[other].dtype for other in (*node.input, *node.output) if other in tensors}
        codes, found = rounded_constant(values, "int16" if "int16" in peers else "int8")
        return self._builder.dequantized_constant(
            f"{name}_for_{label}", codes, np.array(found.scale), None, found.zero_point
        )

    def _weighted(self, node: onnx.NodeProto, copy: onnx.NodeProto, label: str) -> None:
        """Weights a channel, and the bias in units of input scale x weight scale."""
        data, weight = node.input[0], node.input[1]
        layer = layer_weights(self._form, self.graph, node, self.quantized[data].scale)
        constant = self._builder.dequantized_constant
        copy.input[0] = self._dequantize(data, f"{label}_0")
        copy.input[1] = constant(f"{weight}_for_{label}", layer.codes, layer.scale, layer.axis)
        if len(node.input) > 2 and node.input[2] and layer.bias is not None:
            codes, scale = layer.rounded_bias(layer.bias)
            copy.input[2] = constant(f"{node.input[2]}_for_{label}", codes, scale, 0)
        elif node.op_type == "MatMul" and self.graph.absorbed(node.output[0]) is not None:
            self._awaiting_bias[node.output[0]] = layer

    def _restore_output(self, name: str) -> None:
        """Graph outputs are float again under their own names."""
        if self._leaves_as_codes(name):
            self._builder.dequantize(name, self.quantized[name], name)
