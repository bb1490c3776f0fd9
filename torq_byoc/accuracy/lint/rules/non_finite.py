"""NaN and infinity in weights and in what they compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import numpy_helper

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject


def non_finite(subject: Subject) -> Iterator[LintFinding]:
    """Constants that hold NaN or infinity, and the first tensors that become so on the evaluation data.

    Infinity alone may be a mask, unless it reaches an output.
    """
    for tensor in subject.prepared.graph.initializer:
        values = numpy_helper.to_array(tensor)
        bad = _count(values)
        if bad:
            yield LintFinding(
                "non-finite",
                Severity.ERROR if np.isnan(values).any() else Severity.NOTE,
                tensor.name,
                f"{bad} of {values.size} stored values are NaN or infinite",
                "export the model again from a checkpoint without them",
            )
    sick = {name for name, values in subject.first_run.items() if _count(values)}
    lost = any(value.name in sick for value in subject.prepared.graph.output)
    for node in subject.prepared.graph.node:
        made = [name for name in node.output if name in sick]
        if made and not sick.intersection(node.input):
            values = subject.first_run[made[0]]
            yield LintFinding(
                "non-finite",
                Severity.ERROR if lost or np.isnan(values).any() else Severity.NOTE,
                f"{node.name} ({node.op_type}), tensor {made[0]}",
                f"{_count(values)} of {values.size} values become NaN or infinite on the first evaluation sample",
                "check the input's scale, and divisions, logarithms and exponentials in front of this node",
            )


def _count(values: np.ndarray) -> int:
    return int(np.count_nonzero(~np.isfinite(values))) if values.dtype.kind == "f" else 0
