"""Collects the nodes and constants of a QDQ model under names that the float model does not have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from torq_byoc.quantize.parameters import TensorQuantization


class QdqBuilder:
    """Nodes and constants of one model, in the order in which they are added.

    Args:
        taken: names of the float model's tensors.
    """

    def __init__(self, taken: Collection[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._taken = taken
        self._own_names: dict[str, str] = {}
        self._constants: dict[str, onnx.TensorProto] = {}

    def own(self, name: str) -> str:
        """A name for something we add: as asked for, unless the model has one like it."""
        if name not in self._own_names:
            unique = name
            while unique in self._taken:
                unique += "_"
            self._own_names[name] = unique
        return self._own_names[name]

    def parameters(self, name: str, quantization: TensorQuantization) -> list[str]:
        """Names of the scale and the zero point of a tensor."""
        return [
            self._constant(f"{name}_scale", np.array(quantization.scale, np.float32)),
            self._constant(f"{name}_zero_point", np.array(quantization.zero_point, quantization.dtype)),
        ]

    def quantize(self, name: str, source: str, quantization: TensorQuantization) -> None:
        """Codes of a tensor, whose floats are those of ``source``."""
        inputs = [source, *self.parameters(name, quantization)]
        codes = self.own(f"{name}_quantized")
        self.nodes.append(helper.make_node("QuantizeLinear", inputs, [codes], name=f"{name}_QuantizeLinear"))

    def dequantize(self, name: str, quantization: TensorQuantization, output: str) -> str:
        """Floats of a tensor's codes, under another name, which is returned."""
        inputs = [self.own(f"{name}_quantized"), *self.parameters(name, quantization)]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [output], name=f"{output}_DequantizeLinear"))
        return output

    def dequantized_constant(
        self, name: str, codes: np.ndarray, scale: np.ndarray, axis: int | None, zero_point: int = 0
    ) -> str:
        """Floats of stored codes; returns their name.

        Args:
            name: what the names of codes, scale and zero point begin with.
            codes: integers.
            scale: one, 0-d, or one a channel.
            axis: of the channels, None where there is one scale.
            zero_point: of all channels.
        """
        inputs = [
            self._constant(f"{name}_codes", codes),
            self._constant(f"{name}_scale", np.asarray(scale, np.float32)),
            self._constant(f"{name}_zero_point", np.full(scale.shape, zero_point, codes.dtype)),
        ]
        attributes: dict[str, Any] = {"axis": axis} if axis is not None and scale.ndim else {}
        output = self.own(f"{name}_dequantized")
        node = helper.make_node("DequantizeLinear", inputs, [output], name=f"{name}_DequantizeLinear", **attributes)
        self.nodes.append(node)
        return output

    def model(self, source: onnx.ModelProto) -> onnx.ModelProto:
        """The finished model, with the inputs, outputs and those constants of the float model that are still read."""
        graph = source.graph
        used = {name for node in self.nodes for name in node.input} | {value.name for value in graph.output}
        stored = (*graph.initializer, *self._constants.values())
        result = helper.make_model(
            helper.make_graph(
                self.nodes,
                graph.name,
                list(graph.input),
                list(graph.output),
                [tensor for tensor in stored if tensor.name in used],
            ),
            opset_imports=list(source.opset_import),
            ir_version=source.ir_version,
            producer_name="torq_byoc",
        )
        return onnx.shape_inference.infer_shapes(result, data_prop=True)

    def _constant(self, name: str, value: np.ndarray) -> str:
        name = self.own(name)
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(value, name)
        return name
