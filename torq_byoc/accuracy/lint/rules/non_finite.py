"""NaN and infinity in weights and in what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from torq_byoc.accuracy.lint.finding import LintFinding, Severity
from torq_byoc.accuracy.lint.subject import Subject
from torq_byoc.accuracy.lint.watch import Watch
from torq_byoc.quantize.evaluation.evaluator import Arrays


def non_finite(subject: Subject) -> Watch:
    """Constants that hold NaN or infinity, and the first tensors that become so on the evaluation data.

    Infinity alone may be a mask, unless it reaches an output.
    """
    return _NonFinite(subject.prepared.graph)


@dataclass
class _Sick:
    """A node's result in the samples in which it is the first to be no number."""

    tensor: str
    samples: int = 0
    bad: int = 0
    values: int = 0
    undefined: int = 0
    lost: bool = False

    def take(self, values: np.ndarray, lost: bool) -> None:
        """One sample; ``lost``: an output holds NaN or infinity too."""
        self.samples += 1
        self.bad += _count(values)
        self.values += values.size
        self.undefined += int(np.isnan(values).sum())
        self.lost |= lost


class _NonFinite(Watch):
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._seen = 0
        self._sick: dict[str, _Sick] = {}

    def take(self, tensors: Arrays) -> None:
        """Add one sample to what its first sick tensors are counted by."""
        self._seen += 1
        sick = {name for name, values in tensors.items() if _count(values)}
        lost = any(value.name in sick for value in self._graph.output)
        for node in self._graph.node if sick else ():
            made = [name for name in node.output if name in sick]
            if made and not sick.intersection(node.input):
                self._sick.setdefault(node.name, _Sick(made[0])).take(tensors[made[0]], lost)

    def findings(self) -> Iterator[LintFinding]:
        """Constants first, then nodes in the order of the model."""
        yield from filter(None, map(_stored, self._graph.initializer))
        quantized = {node.input[0] for node in self._graph.node if node.op_type == "QuantizeLinear"}
        for node in self._graph.node:
            found = self._sick.get(node.name)
            if found is None:
                continue
            said = f"{found.bad} of {found.values} values become NaN or infinite"
            if found.undefined and found.tensor in quantized:
                said += f"; for the {found.undefined} that are NaN there is no code: the NPU gives them that of zero"
            yield LintFinding(
                "non-finite",
                Severity.ERROR if found.lost or found.undefined else Severity.NOTE,
                f"{node.name} ({node.op_type}), tensor {found.tensor}",
                f"{said} (in {found.samples} of {self._seen} samples)",
                "check the input's scale, and divisions, logarithms and exponentials in front of this node",
            )


def _stored(tensor: onnx.TensorProto) -> LintFinding | None:
    values = numpy_helper.to_array(tensor)
    bad = _count(values)
    if not bad:
        return None
    return LintFinding(
        "non-finite",
        Severity.ERROR if np.isnan(values).any() else Severity.NOTE,
        tensor.name,
        f"{bad} of {values.size} stored values are NaN or infinite",
        "export the model again from a checkpoint without them",
    )


def _count(values: np.ndarray) -> int:
    return int(np.count_nonzero(~np.isfinite(values))) if values.dtype.kind == "f" else 0
