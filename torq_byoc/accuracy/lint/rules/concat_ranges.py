"""Concatenations whose one scale leaves an operand hardly any codes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import numpy_helper

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject
from torq_byoc.accuracy.lint.watch import Watch
from torq_byoc.quantize.evaluation.evaluator import Arrays

FEWEST_CODES = 16
"""An operand that spans fewer steps of the result's scale has lost more than 4 of its 8 bits."""


def concat_ranges(subject: Subject) -> Watch:
    """Range of every operand over the samples, in steps of the result's scale."""
    return _ConcatRanges(subject)


class _ConcatRanges(Watch):
    def __init__(self, subject: Subject) -> None:
        scales = _result_scales(subject.precise)
        nodes = [node for node in subject.prepared.graph.node if node.op_type == "Concat" and node.output[0] in scales]
        self._operands = [(node.name, name, scales[node.output[0]]) for node in nodes for name in node.input]
        self._spans: dict[str, tuple[float, float]] = {}

    def take(self, tensors: Arrays) -> None:
        """Widen the range of every operand, zero included."""
        for name in {name for _, name, _ in self._operands}:
            values = tensors.get(name)
            if values is not None and values.dtype.kind == "f":
                low, high = self._spans.get(name, (0.0, 0.0))
                self._spans[name] = (float(values.min(initial=low)), float(values.max(initial=high)))

    def findings(self) -> Iterator[LintFinding]:
        """Operands that are not zero everywhere and span few steps."""
        for node, name, scale in self._operands:
            low, high = self._spans.get(name, (0.0, 0.0))
            steps = (high - low) / scale
            if 0 < steps < FEWEST_CODES:
                loss = "all of it becomes zero" if steps < 0.5 else "most of its bits are lost"
                yield LintFinding(
                    "concat-ranges",
                    Severity.WARNING,
                    f"{node}, operand {name}",
                    f"the operand spans {steps:.2g} steps of the concatenation's scale {scale:.3g}"
                    f" (want {FEWEST_CODES}): {loss}",
                    "give the operands outputs of their own, or let `torq compile` split the concatenation",
                )


def _result_scales(model: onnx.ModelProto) -> dict[str, float]:
    """Scale of every concatenation that is quantized at once, by its float result's name."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    made = {node.output[0]: node for node in model.graph.node if node.op_type == "Concat"}
    found = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in made and node.input[1] in constants:
            scale = numpy_helper.to_array(constants[node.input[1]])
            if scale.size == 1:
                found[node.input[0].removesuffix("_float")] = float(scale.reshape(()))
    return found
