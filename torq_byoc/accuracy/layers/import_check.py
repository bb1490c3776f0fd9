"""The model as given against the prepared one, by everything that both have under one name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.references.float_reference import OnnxRuntime, float_reference
from torq_byoc.accuracy.verdict.metrics import Comparison
from torq_byoc.frontend.graph import producers

MIN_SQNR = 60.0
"""Decibels to which a float tensor of the prepared model equals the given one's; folding moves last bits only."""
MIN_SQNR_OF_CODES = 35.0
"""The same where the model carries scales: a last bit may move a value to the next code."""


class ImportCheck:
    """Takes in samples and says where preparing has changed results.

    Args:
        original: runs the model as given.
        prepared: the model after preparation.
    """

    def __init__(self, original: OnnxRuntime, prepared: onnx.ModelProto) -> None:
        self._original, self._graph = original, prepared.graph
        self._prepared = float_reference(prepared)
        self._comparisons: dict[str, Comparison] = {}
        quantized = any(node.op_type == "QuantizeLinear" for node in prepared.graph.node)
        self._limit = MIN_SQNR_OF_CODES if quantized else MIN_SQNR

    def take(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Run both on one sample."""
        given, ready = self._original.tensors(feeds), self._prepared.tensors(feeds)
        for name in ready:
            if name in given and given[name].size == ready[name].size and given[name].dtype.kind in "fiub":
                comparison = self._comparisons.setdefault(name, Comparison())
                comparison.update(given[name].reshape(1, -1), ready[name].reshape(1, -1))

    def deviations(self) -> tuple[Deviation, ...]:
        """In the order of the prepared model's nodes; none while the outputs agree."""
        found = {name: comparison.figures().sqnr for name, comparison in self._comparisons.items()}
        culprits, region = _behind(self._graph, {name: value >= self._limit for name, value in found.items()})
        return tuple(
            Deviation(Stage.IMPORT, node.name, name, name in culprits, "", self._detail(found.get(name)))
            for node in self._graph.node
            for name in node.output
            if name in region and (name in found or name in culprits)
        )

    def _detail(self, value: float | None) -> str:
        if value is None:
            return "the model as given has no such tensor; those before agree, those behind do not"
        return f"{value:.1f} dB between the model as given and as prepared, at least {self._limit:.0f} expected"


def _behind(graph: onnx.GraphProto, agrees: Mapping[str, bool]) -> tuple[set[str], set[str]]:
    """Tensors at which errors of the outputs begin, and all that carry them.

    Folding reuses names: a convolution that takes in what follows it keeps its own result's name.  So a tensor counts
    only when the error goes on to an output: errors are followed back from there to where everything before agrees.
    """
    makers = producers(graph)
    constants = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    region: set[str] = set()
    culprits: set[str] = set()
    waiting = [value.name for value in graph.output if not agrees.get(value.name, True)]
    while waiting:
        name = waiting.pop()
        if name in region or name not in makers:
            continue
        region.add(name)
        doubtful = [one for one in makers[name].input if one and one not in constants and not agrees.get(one, False)]
        if not doubtful:
            culprits.add(name)
        waiting += doubtful
    return culprits, region
