"""What a model would gain if one of its layers were not quantized: the proof that the layer is the cause."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from torq_byoc.accuracy.layers.layer_check import LayerRow
from torq_byoc.accuracy.layers.layers import Layer
from torq_byoc.quantize import rules
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator
from torq_byoc.quantize.output_parts import OutputPart

TRIED = 4
"""Layers that are tried, those first whose own error is largest."""


@dataclass(frozen=True)
class Gain:
    """SQNR of an output part in dB with all layers quantized, and without one."""

    row: LayerRow
    before: float
    after: float


def gains(
    prepared: onnx.ModelProto,
    precise: onnx.ModelProto,
    rows: Sequence[LayerRow],
    part: OutputPart,
    feeds: Sequence[Mapping[str, np.ndarray]],
    wanted: Sequence[np.ndarray],
) -> tuple[Gain, ...]:
    """What each of the likeliest layers before an output part costs it, the costliest first.

    Args:
        prepared, precise: the float model and its quantized form.
        rows: of the layer check.
        part: of an output of both.
        feeds: the samples.
        wanted: the float model's values of the output on each of them.
    """
    before = ancestors(prepared, part.output)
    suspects = [row for row in rows if row.layer.codes and row.layer.tensor in before]
    suspects.sort(key=own_error)

    def of(model: onnx.ModelProto) -> float:
        evaluator = Float64Evaluator(model)
        found = [part.of(evaluator.outputs(feed)[part.output]).reshape(-1) for feed in feeds]
        return sqnr(np.concatenate([part.of(values).reshape(-1) for values in wanted]), np.concatenate(found))

    now = of(precise)
    layers = [row.layer for row in rows]
    tried = [
        Gain(row, now, of(without_quantization(prepared, precise, sharing_codes(prepared, layers, row.layer))))
        for row in suspects[:TRIED]
    ]
    return tuple(sorted(tried, key=lambda gain: -gain.after))


def own_error(row: LayerRow) -> float:
    """SQNR of a layer alone, of its worst operand where it has some."""
    return min([row.local.sqnr, *(part.local.sqnr for part in row.parts)])


def sharing_codes(prepared: onnx.ModelProto, layers: Iterable[Layer], layer: Layer) -> tuple[Layer, ...]:
    """A layer and those that only hand its codes on, before and behind it: they have one scale and fall together."""
    codes = {one.tensor: one for one in layers if one.codes and layer.codes and _alike(one, layer)}
    neighbours: dict[str, set[str]] = {name: set() for name in codes}
    for node in prepared.graph.node:
        if node.op_type in rules.SAME_SCALE or node.op_type == "Concat":
            for one, other in itertools.product(node.input, node.output):
                if one in codes and other in codes:
                    neighbours[one].add(other)
                    neighbours[other].add(one)
    found, waiting = {layer.tensor: layer}, [layer.tensor]
    while waiting:
        for name in sorted(neighbours[waiting.pop()] - set(found)):
            found[name] = codes[name]
            waiting.append(name)
    return tuple(found.values())


def _alike(one: Layer, other: Layer) -> bool:
    assert one.codes is not None and other.codes is not None
    return (one.codes.scale, one.codes.zero_point) == (other.codes.scale, other.codes.zero_point)


def without_quantization(
    prepared: onnx.ModelProto, precise: onnx.ModelProto, layers: Sequence[Layer]
) -> onnx.ModelProto:
    """The quantized model with some layers in float: weights are the float model's, results keep all their bits."""
    model = onnx.ModelProto()
    model.CopyFrom(precise)
    weights = {tensor.name: tensor for tensor in prepared.graph.initializer}
    chosen = {layer.node for layer in layers}
    own = {node.name: node for node in prepared.graph.node if node.name in chosen}
    present = {tensor.name for tensor in model.graph.initializer}
    nodes = list(_rewired(model.graph.node, {layer.codes.name: layer.precise for layer in layers if layer.codes}))
    for node in nodes:
        for position, name in enumerate(own[node.name].input if node.name in own else ()):
            if name in weights and position < len(node.input):
                node.input[position] = name
                if name not in present:
                    model.graph.initializer.append(weights[name])
                    present.add(name)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _rewired(nodes: Iterable[onnx.NodeProto], floats: Mapping[str, str]) -> Iterator[onnx.NodeProto]:
    """Dequantizations of some codes pass the float results on that these were made from."""
    for node in nodes:
        if node.op_type == "DequantizeLinear" and node.input[0] in floats:
            yield helper.make_node("Identity", [floats[node.input[0]]], list(node.output), name=node.name)
        else:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            yield copy


def ancestors(model: onnx.ModelProto, tensor: str) -> set[str]:
    """A tensor and everything that it is computed from."""
    found = {tensor}
    for node in reversed(model.graph.node):
        if any(name in found for name in node.output):
            found.update(node.input)
    return found
