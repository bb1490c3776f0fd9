"""Which results of a quantized model are which of the float model that it was made from.

Quantizers keep names, or add words of their own to them; a result may be stored under the name of what follows it, such
as a relu that its quantizer does.  So a layer has several candidates, and what agrees best on the first sample is it.
A name alone proves nothing: rewrites that scale channels, foldings and numbered exports reuse names for other
quantities.  Where what reads a layer is right, the layer cannot be as wrong as its name says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx

from torq_byoc.accuracy.layers.layer_graph import LayerGraph
from torq_byoc.accuracy.layers.layers import INPUT, Layer
from torq_byoc.accuracy.references.float_reference import float_reference
from torq_byoc.accuracy.stages import FloatModel
from torq_byoc.frontend.graph import readers
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.evaluator import Arrays

ALIKE = 10.0
"""Decibels below which a result is not the one of its name if those that read it are right."""
RIGHT = 20.0
"""Decibels from which a result is right: a tenth of its amplitude."""
ADDED = ("_QuantizeLinear_Input", "_quantized", "_float")
"""What quantizers add to the name of a result."""
_CLIPS = ("Relu", "Clip")


class Counterparts:
    """The float model's values of a quantized model's layers.

    Args:
        float_model: what it was made from.
        precise: the quantized model.
        layers: its layers.

    Attributes:
        names: of the float model's tensors by layer, in the order of the layers; known from the first sample on.
    """

    def __init__(self, float_model: FloatModel, precise: onnx.ModelProto, layers: Sequence[Layer]) -> None:
        self._precise, self._layers = precise, layers
        self._runs = [float_reference(model) for model in (float_model.given, float_model.prepared)]
        self._clips = [_clips(model.graph) for model in (float_model.given, float_model.prepared)]
        self._found: dict[str, tuple[int, str]] | None = None

    @property
    def names(self) -> Mapping[str, str]:
        """Of the float model's tensors by layer."""
        return {tensor: name for tensor, (_, name) in (self._found or {}).items()}

    def values(self, feeds: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> Arrays:
        """What the float model has for the layers that are its too, on one sample.

        Args:
            feeds: an array for every input.
            own: what the quantized model makes of them, real values by layer.
        """
        runs = [{**feeds, **run.tensors(feeds)} for run in self._runs]
        if self._found is None:
            self._found = self._paired(runs, own)
        return {tensor: runs[run][name].reshape(own[tensor].shape) for tensor, (run, name) in self._found.items()}

    def _paired(self, runs: Sequence[Arrays], own: Mapping[str, np.ndarray]) -> dict[str, tuple[int, str]]:
        """Run and name by layer."""
        best: dict[str, tuple[float, int, str]] = {}
        for layer in self._layers:
            mine = own[layer.tensor]
            for run, name in self._candidates(layer, runs):
                value = runs[run][name]
                if value.size == mine.size and value.dtype.kind == "f":
                    agreement = sqnr(value.reshape(-1), mine.reshape(-1))
                    if layer.tensor not in best or agreement > best[layer.tensor][0]:
                        best[layer.tensor] = agreement, run, name
        for tensor in self._others(best):
            del best[tensor]
        return {tensor: (run, name) for tensor, (_, run, name) in best.items()}

    def _candidates(self, layer: Layer, runs: Sequence[Arrays]) -> Iterator[tuple[int, str]]:
        if layer.op == INPUT:
            yield 0, layer.tensor
            return
        names = dict.fromkeys(_unadorned(self._stored_in(layer)))
        for run, tensors in enumerate(runs):
            for name in names:
                for one in (name, *self._clips[run].get(name, ())):
                    if one in tensors:
                        yield run, one

    def _stored_in(self, layer: Layer) -> list[str]:
        """Names of a layer's result: in floats, as codes, and read back from them."""
        if layer.codes is None:
            return [layer.tensor, layer.precise]
        nodes = self._precise.graph.node
        back = [n.output[0] for n in nodes if n.op_type == "DequantizeLinear" and n.input[0] == layer.codes.name]
        return [layer.tensor, layer.precise, layer.codes.name, *back]

    def _others(self, best: Mapping[str, tuple[float, int, str]]) -> Iterator[str]:
        """Layers that share no more than a name, those behind first."""
        graph = LayerGraph(self._precise, (layer for layer in self._layers if layer.tensor in best))
        wrong = {tensor for tensor, (agreement, *_) in best.items() if agreement < RIGHT}
        readers_: dict[str, set[str]] = {tensor: set() for tensor in best}
        for tensor in best:
            for source in graph.sources(tensor):
                readers_[source].add(tensor)
        ends = set(graph.ends())
        for layer in reversed([layer for layer in self._layers if layer.tensor in best]):
            tensor = layer.tensor
            doubtful = best[tensor][0] < ALIKE and tensor not in ends and layer.op != INPUT
            if doubtful and readers_[tensor] and not readers_[tensor] & wrong:
                for source in graph.sources(tensor):
                    readers_[source] |= readers_[tensor]
                    readers_[source].discard(tensor)
                wrong.discard(tensor)
                yield tensor


def _unadorned(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield name
        for word in ADDED:
            if name.endswith(word):
                yield name.removesuffix(word)


def _clips(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """By tensor what clips of it make, which a quantizer may do in their place."""
    users = readers(graph)
    return {
        name: [node.output[0] for node in users[name] if node.op_type in _CLIPS and node.input[0] == name]
        for name in users
    }
