"""A model whose layers all read given values: what each of them does on its own, in one run.

One copy of the model serves all layers at once: wherever a layer reads an intermediate tensor, it reads a model input
of its own instead, fed with the values that somebody chose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator

FED = "__fed"


def on_given_inputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model whose layers read ``names`` from inputs ``<name>__fed``; its outputs are exactly ``names``."""
    copy = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = copy.graph
    known = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    read = _read_elsewhere(graph, set(names))
    for name in names:
        if name in read:
            kind = known[name].type.tensor_type
            shape = [dim.dim_value for dim in kind.shape.dim]
            graph.input.append(helper.make_tensor_value_info(name + FED, kind.elem_type, shape))
    graph.ClearField("output")
    graph.output.extend(known[name] for name in names)
    return copy


def _read_elsewhere(graph: onnx.GraphProto, names: Collection[str]) -> set[str]:
    """Let readers of ``names`` read the inputs; those that have readers."""
    read = set()
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name in names:
                node.input[position] = name + FED
                read.add(name)
    return read


class LayeredEvaluator:
    """Runs every layer of a model on values given for all of its stored tensors, in float64.

    Args:
        model: float or quantized.
        names: the stored tensors: layers read them, and are made up of what lies between them.
    """

    def __init__(self, model: onnx.ModelProto, names: Sequence[str]) -> None:
        layered = on_given_inputs(model, names)
        self._fed = [value.name for value in layered.graph.input]
        self._evaluator = Float64Evaluator(layered)

    def outputs(self, values: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]) -> Arrays:
        """What each layer makes of ``values`` (of the stored tensors by name) and of the model's inputs."""
        inputs = {name: values[name.removesuffix(FED)] if name.endswith(FED) else feeds[name] for name in self._fed}
        return self._evaluator.outputs(inputs)
