"""Faults in the models themselves: of preparation, and of quantization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.accuracy.fault import Fault
from benchmarks.accuracy.fault_subjects import Subject
from benchmarks.accuracy.program_editor import permuted
from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.stages import stages_of

Change = Callable[[onnx.ModelProto, np.random.Generator], tuple[tuple[str, ...], str] | None]
"""Changes a model in place: the layers that may be named, and the facts; None where there is no place for the fault."""


def _prepared(kind: str, change: Change) -> Callable[[Subject, np.random.Generator], Fault | None]:
    """An injector that changes the prepared model; everything after it is made from the changed one."""

    def inject(subject: Subject, rng: np.random.Generator) -> Fault | None:
        model, stages = _copy(subject.stages.prepared), subject.stages
        if (found := change(model, rng)) is None:
            return None
        faulty = stages_of(model, stages.options, name=subject.name)
        return Fault(kind, Stage.IMPORT, *found, replace(faulty, original=stages.original))

    return inject


def _quantized(kind: str, change: Change) -> Callable[[Subject, np.random.Generator], Fault | None]:
    """An injector that changes the quantized model; everything after it is made from the changed one."""

    def inject(subject: Subject, rng: np.random.Generator) -> Fault | None:
        stages = subject.stages
        if stages.precision == "bf16":
            return None
        model = _copy(stages.precise)
        if (found := change(model, rng)) is None:
            return None
        options = replace(stages.options, precision="auto", calibration=None)
        faulty = stages_of(model, options, name=subject.name)
        whole = replace(faulty, original=stages.original, prepared=stages.prepared, precision=stages.precision)
        return Fault(kind, Stage.QUANTIZATION, *found, whole)

    return inject


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _constants(model: onnx.ModelProto) -> Mapping[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def _set(tensor: onnx.TensorProto, value: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))


def _weights(model: onnx.ModelProto) -> list[tuple[str, onnx.TensorProto, onnx.NodeProto | None]]:
    """Weighted nodes with the tensor of their weights or codes, and the node that dequantizes these."""
    constants = _constants(model)
    dequantized = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    found = []
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            source = dequantized.get(node.input[1])
            name = source.input[0] if source else node.input[1]
            if name in constants:
                found.append((node.name, constants[name], source))
    return found


def _result(model: onnx.ModelProto, node: str) -> tuple[str, ...]:
    """A node, and those behind it up to the next stored result: a layer goes by the name of the last of them."""
    names, tensors = [node], {name for one in model.graph.node if one.name == node for name in one.output}
    for one in model.graph.node:
        if one.op_type in ("Relu", "Clip", "Add") and tensors.intersection(one.input):
            names.append(one.name)
            tensors.update(one.output)
    return tuple(names[:3])


def _permute_weights(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[tuple[str, ...], str] | None:
    places = _weights(model)
    node, tensor, _ = places[int(rng.integers(len(places)))]
    value = numpy_helper.to_array(tensor)
    _set(tensor, value.reshape(-1)[permuted(rng, value.size)].reshape(value.shape))
    return _result(model, node), f"weights of {node}"


def _swap_channels(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[tuple[str, ...], str] | None:
    places = [place for place in _weights(model) if len(place[1].dims) == 4 and place[1].dims[1] > 1]
    if not places:
        return None
    node, tensor, _ = places[int(rng.integers(len(places)))]
    value = numpy_helper.to_array(tensor).copy()
    value = value[:, permuted(rng, value.shape[1])]
    _set(tensor, value)
    return _result(model, node), f"input channels of {node}"


def _shift_pads(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[tuple[str, ...], str] | None:
    """A border moved by one to the other side."""
    nodes = [n for n in model.graph.node if any(a.name == "pads" and any(a.ints) for a in n.attribute)]
    if not nodes:
        return None
    node = nodes[int(rng.integers(len(nodes)))]
    pads = next(attribute for attribute in node.attribute if attribute.name == "pads").ints
    axis = int(rng.integers(len(pads) // 2))
    other = axis + len(pads) // 2
    if not pads[axis]:
        return None
    pads[axis], pads[other] = pads[axis] - 1, pads[other] + 1
    return _result(model, node.name), f"pads of {node.name}"


def _swap_scales(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[tuple[str, ...], str] | None:
    """The scales of two channels of a weight, unlike each other."""
    places = [place for place in _weights(model) if place[2] is not None]
    node, _, source = places[int(rng.integers(len(places)))]
    assert source is not None
    tensor = _constants(model)[source.input[1]]
    value = numpy_helper.to_array(tensor).copy()
    if value.size < 2:
        return None
    _set(tensor, np.roll(value, int(rng.integers(1, value.size))) if value.size > 2 else value[::-1])
    return _result(model, node), f"weight scales of {node}"


def _swap_activation_scales(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[tuple[str, ...], str] | None:
    """The scales of two stored results, at least four times apart."""
    constants = _constants(model)
    stored = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    first, second = (stored[int(index)] for index in rng.choice(len(stored), 2, replace=False))
    scales = [numpy_helper.to_array(constants[node.input[1]]).copy() for node in (first, second)]
    if max(scales) < 4 * min(scales):
        return None
    _set(constants[first.input[1]], scales[1])
    makers = {name: node.name for node in model.graph.node for name in node.output}
    return (makers.get(first.input[0], first.input[0]),), f"scale of {first.input[0]}"


def _drop_zero_point(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[tuple[str, ...], str] | None:
    """A stored result is read with zero point 0."""
    constants = _constants(model)
    makers = {name: node for node in model.graph.node for name in node.output}
    readers = [
        node
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in makers and np.any(_value(constants, node.input[2]))
    ]
    if not readers:
        return None
    node = readers[int(rng.integers(len(readers)))]
    zero = onnx.TensorProto()
    zero.CopyFrom(constants[node.input[2]])
    zero.name = f"{node.name}_no_zero_point"
    _set(zero, np.zeros_like(_value(constants, node.input[2])))
    model.graph.initializer.append(zero)
    node.input[2] = zero.name
    users = [other.name for other in model.graph.node if node.output[0] in other.input]
    source = makers[makers[node.input[0]].input[0]].name if makers[node.input[0]].input[0] in makers else ""
    layers = tuple(name for user in users for name in _result(model, user))
    return (*layers, source), f"zero point of {node.input[0]} as {', '.join(users)} reads it"


def _value(constants: Mapping[str, onnx.TensorProto], name: str) -> np.ndarray:
    return numpy_helper.to_array(constants[name])


IMPORT = (
    _prepared("weights permuted", _permute_weights),
    _prepared("channels swapped", _swap_channels),
    _prepared("border moved", _shift_pads),
)
QUANTIZATION = (
    _quantized("weights permuted", _permute_weights),
    _quantized("channels swapped", _swap_channels),
    _quantized("scale swapped", _swap_scales),
    _quantized("scale swapped", _swap_activation_scales),
    _quantized("zero point dropped", _drop_zero_point),
)
