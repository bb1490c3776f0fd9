"""Rules about what a model computes: they see every sample once, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torq_byoc.accuracy.lint.finding import LintFinding
from torq_byoc.quantize.evaluation.evaluator import Arrays


class Watch(ABC):
    """Takes in the tensors of samples and says in the end what it found; what it keeps of a sample are sums."""

    @abstractmethod
    def take(self, tensors: Arrays) -> None:
        """One sample: every tensor of the prepared model by name, its inputs too."""

    @abstractmethod
    def findings(self) -> Iterable[LintFinding]:
        """Of all samples together."""
