"""What a quantized model would gain if one of its layers were right: the proof that the layer is the cause.

A model that carries its scales cannot be quantized otherwise, but it can be given the float model's values: once in
front of a layer, and once behind it as well.  What lies between the two is the layer's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from torq_byoc.accuracy.causes.what_if import TRIED, Gain, ancestors, own_error
from torq_byoc.accuracy.layers.layer_check import LayerRow
from torq_byoc.accuracy.layers.layer_graph import LayerGraph
from torq_byoc.accuracy.layers.layers import Layer
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator
from torq_byoc.quantize.output_parts import OutputPart


def transplants(
    precise: onnx.ModelProto,
    rows: Iterable[LayerRow],
    part: OutputPart,
    feeds: Sequence[Mapping[str, np.ndarray]],
    values: Sequence[Mapping[str, np.ndarray]],
    wanted: Sequence[np.ndarray],
) -> tuple[Gain, ...]:
    """What each of the likeliest layers before an output part costs it, those first whose own error is largest.

    What a layer reads is given as codes, what it makes as real values: so its own scales count as its own, and so does
    what it takes codes for.

    Args:
        precise: the quantized model.
        rows: of the layer check; those that the float model has are tried.
        part: of an output.
        feeds: the samples.
        values: the float model's on each of them, by layer.
        wanted: the float model's of the output.
    """
    known = [row for row in rows if row.float_name is not None]
    graph = LayerGraph(precise, (row.layer for row in known))
    before = ancestors(precise, part.output)
    suspects = sorted((row for row in known if row.layer.precise in before), key=own_error)
    truth = np.concatenate([part.of(one).reshape(-1) for one in wanted])

    def reached(places: Mapping[str, str]) -> float:
        evaluator = Float64Evaluator(_fed(precise, places))
        found: list[np.ndarray] = []
        for feed, own in zip(feeds, values, strict=True):
            given = {name: _as_stored(graph.layers[tensor], name, own[tensor]) for name, tensor in places.items()}
            found.append(part.of(evaluator.outputs({**feed, **given})[part.output]).reshape(-1))
        return sqnr(truth, np.concatenate(found))

    tried = []
    for row in suspects[:TRIED]:
        tensor = row.layer.tensor
        read = {name: source for source in graph.sources(tensor) for name in graph.stored_in(source)}
        tried.append(Gain(row, reached(read), reached({**read, **dict.fromkeys(graph.held_in(tensor), tensor)})))
    return tuple(tried)


def removed_noise(gain: Gain) -> float:
    """The error that is a layer's own, as a part of the output's signal in energy."""
    return noise(gain.before) - noise(gain.after)


def noise(decibels: float) -> float:
    """Error over signal, as energies, of an SQNR."""
    return float(10.0 ** (-decibels / 10))


def _fed(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with some of its results as inputs; what made them is made under other names."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    kinds = {value.name: value for value in (*graph.value_info, *graph.output)}
    chosen = set(names) - {value.name for value in graph.input}
    for node in graph.node:
        for position, name in enumerate(node.output):
            if name in chosen:
                node.output[position] = f"{name}__made"
    graph.input.extend(kinds[name] for name in sorted(chosen))
    return changed


def _as_stored(layer: Layer, name: str, values: np.ndarray) -> np.ndarray:
    """Real values as a tensor holds them."""
    return layer.codes.quantize(values) if layer.codes and name == layer.codes.name else values.astype(np.float32)
