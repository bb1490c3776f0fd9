"""Layer by layer against float semantics: every layer computed from the inputs that the reference gave it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from tests.relay_patterns.infra import onnxruntime_outputs
from torq_byoc.accuracy.layers.layered import FED, on_given_inputs
from torq_byoc.accuracy.references.integer_reference import IntegerReference
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize.evaluation.distance import cosine
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.evaluation.float64 import float64_outputs


def quantized_tensors(model: onnx.ModelProto) -> list[str]:
    """Results of the quantize operators, in graph order."""
    return [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]


def exposing(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """The model with more of its tensors as outputs."""
    copy = _inferred(model)
    known = _values(copy)
    present = {value.name for value in copy.graph.output}
    copy.graph.output.extend(known[name] for name in names if name not in present)
    return copy


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _values(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    graph = model.graph
    return {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}


def _layered(model: onnx.ModelProto, values: Arrays, feeds: Arrays) -> tuple[onnx.ModelProto, Arrays]:
    """The model whose layers read ``values``, and its inputs."""
    layered = on_given_inputs(model, list(values))
    inputs = {}
    for value in layered.graph.input:
        name = value.name
        inputs[name] = values[name.removesuffix(FED)] if name.endswith(FED) else feeds[name]
    return layered, inputs


def expected_from(model: onnx.ModelProto, values: Arrays, feeds: Arrays) -> Arrays:
    """What onnxruntime makes of each tensor of ``values`` when every layer reads ``values`` themselves."""
    return dict(zip(values, onnxruntime_outputs(*_layered(model, values, feeds)), strict=True))


@dataclass(frozen=True)
class LayerDistances:
    """Distances in LSB of every quantized tensor from QDQ semantics in float64, each layer reading what the reference
    gave it; ``truth`` is the largest distance between onnxruntime's float32 and float64."""

    worst: dict[str, int]
    mean: dict[str, float]
    truth: int


def quantized_layers(model: onnx.ModelProto, feeds: Arrays, config: NpuConfig) -> LayerDistances:
    """Compare every quantized tensor of a prepared QDQ model."""
    names = quantized_tensors(model)
    ours = IntegerReference.of(exposing(model, names), "quantized", config).run(feeds)
    values = {name: ours[name] for name in names}
    layered, inputs = _layered(model, values, feeds)
    exact = float64_outputs(layered, inputs)
    rounded = dict(zip(names, onnxruntime_outputs(layered, inputs), strict=True))
    own = {name: _distance(values[name], exact[name]) for name in names}
    return LayerDistances(
        {name: int(distance.max(initial=0)) for name, distance in own.items()},
        {name: float(distance.mean()) for name, distance in own.items()},
        max(int(_distance(rounded[name], exact[name]).max(initial=0)) for name in names),
    )


@dataclass(frozen=True)
class EndToEnd:
    """Mean distances in LSB, over all quantized tensors of a whole run, from QDQ semantics in float64."""

    ours: float
    onnxruntime: float


def end_to_end(model: onnx.ModelProto, feeds: Arrays, config: NpuConfig) -> EndToEnd:
    """Whole runs of a prepared QDQ model: layers inherit what those before them moved."""
    names = quantized_tensors(model)
    exposed = exposing(model, names)
    ours = IntegerReference.of(exposed, "quantized", config).run(feeds)
    exact = float64_outputs(exposed, feeds)
    order = [value.name for value in exposed.graph.output]
    rounded = dict(zip(order, onnxruntime_outputs(exposed, feeds), strict=True))
    return EndToEnd(_mean_distance(ours, exact, names), _mean_distance(rounded, exact, names))


def _mean_distance(a: Arrays, b: Arrays, names: list[str]) -> float:
    return float(np.mean([_distance(a[name], b[name]).mean() for name in names]))


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a.reshape(b.shape).astype(np.int64) - b.astype(np.int64))


def float_layers(model: onnx.ModelProto, reference: IntegerReference, feeds: Arrays) -> dict[str, float]:
    """Cosine of every layer of a prepared float model; ``reference`` has just run on ``feeds``.

    A layer is a fused group; its result is that of the last ONNX node it came from.
    """
    result_of = {node.name: node.output[0] for node in model.graph.node if len(node.output) == 1}
    values: Arrays = {}
    known = _values(_inferred(model))
    for call in reference.calls:
        tensors = call.tensors
        for node in reference.graphs[call.symbol].nodes:
            name = result_of.get(node.origin.split("+")[-1])
            kind = known[name].type.tensor_type if name in known else None
            if kind is None or kind.elem_type != TensorProto.FLOAT:
                continue
            if [dim.dim_value for dim in kind.shape.dim] == list(tensors[node.output].shape):
                values[name] = tensors[node.output].astype(np.float32)
    theirs = expected_from(model, values, feeds)
    return {name: cosine(values[name], theirs[name]) for name in values}
