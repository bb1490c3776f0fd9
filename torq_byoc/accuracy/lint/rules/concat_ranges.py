"""Concatenations whose one scale leaves an operand hardly any codes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject

FEWEST_CODES = 16
"""An operand that spans fewer steps of the result's scale has lost more than 4 of its 8 bits."""


def concat_ranges(subject: Subject) -> Iterator[LintFinding]:
    """Range of every operand on the first evaluation sample, in steps of the result's scale."""
    scales = _result_scales(subject.precise)
    for node in subject.prepared.graph.node:
        scale = scales.get(node.output[0])
        if node.op_type != "Concat" or scale is None:
            continue
        for name in node.input:
            values = subject.first_run.get(name)
            if values is None or values.dtype.kind != "f" or not values.any():
                continue
            steps = float(np.ptp(np.append(values, 0.0))) / scale
            if steps < FEWEST_CODES:
                loss = "all of it becomes zero" if steps < 0.5 else "most of its bits are lost"
                yield LintFinding(
                    "concat-ranges",
                    Severity.WARNING,
                    f"{node.name}, operand {name}",
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
