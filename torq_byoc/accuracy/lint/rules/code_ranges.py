"""Stored results whose scales do not fit the data: clipped far more than a calibrator would, or hardly resolved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from torq_byoc.accuracy.layers.codes import Codes, codes_of
from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject
from torq_byoc.frontend.graph import constant_tensors, producers
from torq_byoc.quantize.evaluation.distance import sqnr

MOST_CLIPPED = 0.05
"""Part of the values outside the range; calibrators that clip leave a thousandth or less out."""
MOST_LOST = 12.0
"""Decibels to which clipping alone takes a result: a calibrator weighs it against rounding, which is far finer."""
FEWEST_CODES = 8
"""Steps that a result spans at least if its scale is of its kind."""
COARSE = 20.0
"""Decibels to which rounding alone takes a result: a tenth of its amplitude."""
FEWEST_VALUES = 64
"""Values of a result that say something about it."""
BOUNDED = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh"})
"""Operators whose scale stands for what they can give, not for what they do."""
CLIP_ENDS = (1.0, 6.0)
"""Ends of clips that a quantizer may do in their place, beside zero."""


def code_ranges(subject: Subject) -> Iterator[LintFinding]:
    """Every stored result of a model that came with its scales, on the first evaluation sample.

    What is made of a tensor with a finding has none of its own.
    """
    if not subject.carries_scales or not subject.evaluation:
        return
    graph = subject.precise.graph
    makers, constants = producers(graph), constant_tensors(graph)
    values = {**subject.evaluation[0], **subject.first_run}
    followed: set[str] = set()
    for node in graph.node:
        name = node.input[0] if node.op_type == "QuantizeLinear" else ""
        if followed.intersection(node.input):
            followed.update(node.output)
        elif name in values and (codes := codes_of(node, node.output[0], constants)):
            finding = _finding(name, makers.get(name), codes, np.asarray(values[name], np.float64))
            if finding:
                followed.update(node.output)
                yield finding


def _finding(name: str, maker: onnx.NodeProto | None, codes: Codes, values: np.ndarray) -> LintFinding | None:
    if values.size < FEWEST_VALUES or not np.isfinite(values).all():
        return None
    fact = _clipped(codes, values) or ("" if maker and maker.op_type in BOUNDED else _coarse(codes, values))
    if not fact:
        return None
    if maker is None:
        remedy = f"give data in the range that the model was calibrated for, or check the scale of {name}"
    else:
        remedy = f"check the scale and the zero point of {name}; quantize the float model again if they are damaged"
    where = f"input {name}" if maker is None else f"{maker.name}, tensor {name}"
    return LintFinding("code-ranges", Severity.WARNING, where, fact, remedy)


def _clipped(codes: Codes, values: np.ndarray) -> str:
    """Why the range is too narrow; empty when it is not, or does the work of a relu or a clip."""
    low, high = (float(codes.dequantize(np.array(limit))) for limit in codes.limits)
    meant = np.clip(
        values,
        0.0 if codes.zero_point == codes.limits[0] else None,
        high if any(abs(high - end) <= codes.scale for end in CLIP_ENDS) else None,
    )
    outside = float(np.mean((meant < low - codes.scale) | (meant > high + codes.scale)))
    if outside <= MOST_CLIPPED or sqnr(meant, np.clip(meant, low, high)) >= MOST_LOST:
        return ""
    return (
        f"{outside:.1%} of the values lie outside {low:.4g} .. {high:.4g}, all that its codes can say"
        f" (they reach from {values.min():.4g} to {values.max():.4g}); a calibrator leaves a thousandth out"
    )


def _coarse(codes: Codes, values: np.ndarray) -> str:
    """Why the steps are too large; empty when they are not."""
    low, high = (float(codes.dequantize(np.array(limit))) for limit in codes.limits)
    inside = np.clip(values, low, high)
    found = codes.quantize(inside)
    used = int(found.max()) - int(found.min()) + 1
    if used > FEWEST_CODES or np.unique(inside).size <= used or sqnr(inside, codes.dequantize(found)) >= COARSE:
        return ""
    return (
        f"the values use {used} of {codes.limits[1] - codes.limits[0] + 1} codes: they reach from {values.min():.4g} to"
        f" {values.max():.4g}, in steps of {codes.scale:.4g}"
    )
