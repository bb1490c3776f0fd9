"""The model as given against the prepared one: everything that both have under one name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.metrics import Comparison
from torq_byoc.accuracy.references.float_reference import OnnxRuntime, float_reference
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
        """In the order of the prepared model's nodes."""
        found = {name: comparison.figures().sqnr for name, comparison in self._comparisons.items()}
        bad = {name for name, value in found.items() if value < self._limit}
        reached = _reached_from(self._graph, bad)
        makers = producers(self._graph)
        return tuple(
            Deviation(
                Stage.IMPORT,
                makers[name].name if name in makers else name,
                name,
                name not in reached,
                "",
                f"{found[name]:.1f} dB between the model as given and as prepared, at least {self._limit:.0f} expected",
            )
            for name in _in_order(self._graph)
            if name in bad
        )


def _reached_from(graph: onnx.GraphProto, names: set[str]) -> set[str]:
    """Tensors that depend on one of some others."""
    reached: set[str] = set()
    for node in graph.node:
        if any(name in names or name in reached for name in node.input):
            reached.update(node.output)
    return reached


def _in_order(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in node.output if name]
