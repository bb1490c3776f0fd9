"""Channels that compute nothing, before or because of quantization."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import numpy_helper

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject

_WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0, "MatMul": -1}
SUBNORMAL = float(np.finfo(np.float32).tiny)


def dead_weights(subject: Subject) -> Iterator[LintFinding]:
    """Output channels whose weights are all zero, and channels that only quantization makes so."""
    in_float = list(_zero_in_float(subject))
    yield from in_float
    known = {finding.where for finding in in_float}
    for product in subject.products:
        dead = np.flatnonzero(~product.codes.any(axis=1))
        if 0 < dead.size < len(product.codes):
            yield LintFinding(
                "dead-weights",
                Severity.NOTE,
                product.node,
                f"all weights of {dead.size} of {len(product.codes)} channels have code zero"
                f" (channel {dead[0]} first): these channels are constant",
                "prune them from the model: they cost cycles and bytes",
            )
        elif dead.size and product.node not in known:
            yield LintFinding(
                "dead-weights",
                Severity.ERROR,
                product.node,
                "all weights of the layer have code zero",
                "check the weights and their scale: the layer's result does not depend on its input",
            )


def _zero_in_float(subject: Subject) -> Iterator[LintFinding]:
    constants = {tensor.name: tensor for tensor in subject.prepared.graph.initializer}
    for node in subject.prepared.graph.node:
        if node.op_type not in _WEIGHTED or len(node.input) < 2 or node.input[1] not in constants:
            continue
        weights = numpy_helper.to_array(constants[node.input[1]])
        if weights.dtype.kind != "f" or not weights.size:
            continue
        small = np.abs(weights) < SUBNORMAL
        if small.all() or (small & (weights != 0)).any():
            yield LintFinding(
                "dead-weights",
                Severity.WARNING,
                node.name,
                "all weights are zero"
                if not weights.any()
                else f"{int((small & (weights != 0)).sum())} of"
                f" {weights.size} weights are subnormal numbers: nothing to any integer type",
                "check how the model was exported: the layer may not have been loaded or trained",
            )
