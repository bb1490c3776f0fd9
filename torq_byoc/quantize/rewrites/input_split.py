"""How an input is split into usual values and outliers, and the layers that read it are computed for both.

Before: ``y = Conv(x, w, b)``
After:  ``u = Clip(x, -c, c); o = Gather(x - u, channels); y = Add(Conv(u, w, b), Conv(o, w'))``

``w'`` are the weights of the channels with outliers, which share their rows of the sum.  ``Clip``, ``Sub`` and
``Gather`` stay float, on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from torq_byoc.frontend.passes.editor import GraphEditor


class InputSplit:
    """Splits inputs of one model, which is changed.

    Args:
        model: a prepared float model.

    Attributes:
        floats: names of the nodes that the CPU computes.
        sparse: names of the tensors that hold outliers, or sums of outliers alone.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._editor = GraphEditor(model)
        self._nodes = {node.name: node for node in model.graph.node}
        self._first: list[onnx.NodeProto] = []
        self._behind: dict[str, list[onnx.NodeProto]] = {}
        self.floats: list[str] = []
        self.sparse: list[str] = []

    def apply(self, name: str, axis: int, layers: Iterable[str], bound: float, channels: np.ndarray) -> None:
        """Split one input for some of the layers that read it.

        Args:
            name: of the input.
            axis: of its channels.
            layers: names of nodes with stored weights; not grouped, unless all channels have outliers.
            bound: the largest usual magnitude.
            channels: int64, ascending: those with outliers.
        """
        editor, shape = self._editor, self._shape(name)
        ends = [editor.add_constant(np.array(end, np.float32), f"{name}_end") for end in (-bound, bound)]
        usual = self._on_cpu("Clip", [name, *ends], f"{name}_usual", shape)
        outliers = self._on_cpu("Sub", [name, usual], f"{name}_outliers", shape)
        if channels.size < shape[axis]:
            indices = editor.add_constant(channels.astype(np.int64), f"{name}_channels")
            outliers = self._on_cpu("Gather", [outliers, indices], f"{name}_chosen", shape, axis % len(shape), channels)
        self.sparse.append(outliers)
        for layer in layers:
            self._compute_twice(self._nodes[layer], usual, outliers, channels)

    def finished(self) -> onnx.ModelProto:
        """The model with its new nodes in place."""
        graph = self._editor.graph
        ordered = [*self._first]
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            ordered += [copy, *self._behind.get(node.name, [])]
        del graph.node[:]
        graph.node.extend(ordered)
        return self._editor.model

    def _on_cpu(
        self,
        op_type: str,
        inputs: list[str],
        output: str,
        shape: Sequence[int],
        axis: int | None = None,
        channels: Sequence[int] | np.ndarray = (),
    ) -> str:
        """A float node's result; with an axis that of a gather."""
        extents = [len(channels) if place == axis else extent for place, extent in enumerate(shape)]
        result = self._new_tensor(output, extents)
        node = helper.make_node(op_type, inputs, [result], self._editor.fresh_name(f"{result}_made"))
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        self._first.append(node)
        self.floats.append(node.name)
        return result

    def _new_tensor(self, base: str, shape: Sequence[int]) -> str:
        name = self._editor.fresh_name(base)
        self._editor.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return name

    def _shape(self, name: str) -> tuple[int, ...]:
        shape = self._editor.static_shape(name)
        assert shape is not None  # the model is prepared
        return shape

    def _compute_twice(self, layer: onnx.NodeProto, usual: str, outliers: str, channels: np.ndarray) -> None:
        """Let a layer read the usual values, a copy of it the outliers, and add up behind its bias."""
        editor, shape = self._editor, self._shape(layer.output[0])
        last = self._with_bias(layer)
        layer.input[0] = usual
        result = last.output[0]
        last.output[0] = self._new_tensor(f"{result}_of_usual", shape)
        copy = onnx.NodeProto()
        copy.CopyFrom(layer)
        copy.name = editor.fresh_name(f"{layer.name}_outliers")
        copy.output[0] = self._new_tensor(f"{result}_of_outliers", shape)
        del copy.input[:]
        copy.input.extend([outliers, self._weights_of(layer, channels)])
        total = editor.fresh_name(f"{layer.name}_total")
        self._behind[last.name] = [copy, helper.make_node("Add", [last.output[0], copy.output[0]], [result], total)]
        self.sparse.append(copy.output[0])

    def _with_bias(self, layer: onnx.NodeProto) -> onnx.NodeProto:
        """The layer, or the addition of its bias where that is a node of its own."""
        reader = self._editor.sole_reader(layer.output[0])
        if layer.op_type != "MatMul" or reader is None or reader.op_type != "Add":
            return layer
        stored = any(self._editor.array(name) is not None for name in reader.input)
        return reader if stored and self._shape(reader.output[0]) == self._shape(layer.output[0]) else layer

    def _weights_of(self, layer: onnx.NodeProto, channels: np.ndarray) -> str:
        """The layer's weights for some channels of its input."""
        weights = self._editor.array(layer.input[1])
        assert weights is not None
        axis = {"Conv": 1, "MatMul": weights.ndim - 2}.get(layer.op_type, 0)
        if channels.size >= weights.shape[axis]:
            return layer.input[1]
        return self._editor.add_constant(np.take(weights, channels, axis), f"{layer.input[1]}_chosen")
