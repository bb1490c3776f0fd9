"""Which layers read which, over everything that lies between their stored results."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from torq_byoc.accuracy.layers.layers import Layer
from torq_byoc.frontend.graph import producers


class LayerGraph:
    """Layers of a quantized model and the tensors that hold their results.

    Args:
        model: the precise one.
        layers: those that count; what lies between them belongs to the one behind.
    """

    def __init__(self, model: onnx.ModelProto, layers: Iterable[Layer]) -> None:
        self._makers = producers(model.graph)
        self._outputs = [value.name for value in model.graph.output]
        self.layers = {layer.tensor: layer for layer in layers}
        self._owners: dict[str, str] = {}
        self._held: dict[str, list[str]] = {}
        by_codes = {layer.codes.name: layer.tensor for layer in self.layers.values() if layer.codes}
        for layer in self.layers.values():
            self._own(layer.precise, layer.tensor)
        for node in model.graph.node:
            if node.op_type == "DequantizeLinear" and node.input[0] in by_codes:
                self._own(node.output[0], by_codes[node.input[0]])

    def _own(self, name: str, tensor: str) -> None:
        self._owners[name] = tensor
        self._held.setdefault(tensor, []).append(name)

    def held_in(self, tensor: str) -> tuple[str, ...]:
        """Tensors with the real values of a layer: as it is computed, and dequantized from its codes."""
        return tuple(self._held[tensor])

    def stored_in(self, tensor: str) -> tuple[str, ...]:
        """Tensors from which others read a layer: its codes, and its real values where these are read too."""
        layer = self.layers[tensor]
        return (layer.codes.name, layer.precise) if layer.codes else (layer.precise,)

    def sources(self, tensor: str) -> tuple[str, ...]:
        """Layers that a layer reads, by tensor."""
        maker = self._makers.get(self.layers[tensor].precise)
        return self._nearest(maker.input) if maker else ()

    def ends(self) -> tuple[str, ...]:
        """Layers that the model's outputs are made of."""
        return self._nearest(self._outputs)

    def _nearest(self, names: Iterable[str]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        waiting, seen = list(names), set[str]()
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if name in self._owners:
                found[self._owners[name]] = None
            elif name in self._makers:
                waiting += self._makers[name].input
        return tuple(found)
