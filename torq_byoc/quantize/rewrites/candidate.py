"""A float model in another form, about to be quantized, and what proposes such forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from torq_byoc.quantize.qdq.quantizable import OPSETS, Quantizable, quantizable
from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model to quantize.

    Attributes:
        model: prepared, float32; computes what the user's model computes, in real arithmetic.
        floats: names of nodes that stay float, on the CPU.
        methods: calibrators of the tensors that have one of their own.
        wide: names of tensors with codes of 16 bits.
    """

    model: onnx.ModelProto
    floats: frozenset[str] = frozenset()
    methods: Mapping[str, str] = field(default_factory=dict)
    wide: frozenset[str] = frozenset()

    def rewritten(
        self, model: onnx.ModelProto, floats: Iterable[str] = (), methods: Mapping[str, str] | None = None
    ) -> Candidate:
        """The same choices with another model that computes the same, further floats and further calibrators."""
        return replace(self, model=model, floats=self.floats.union(floats), methods={**self.methods, **(methods or {})})

    def with_wide(self, tensors: Sequence[str], method: str | None = None) -> Candidate:
        """The same with further tensors whose codes have 16 bits, and the calibrator of these tensors."""
        methods = dict.fromkeys(tensors, method) if method else {}
        return replace(self, wide=self.wide.union(tensors), methods={**self.methods, **methods})


def quantizable_candidate(candidate: Candidate, correct_biases: bool) -> Quantizable:
    """A candidate in the form that a precision plan is written for.

    Raises:
        QuantizationError: the opset cannot be raised.
    """
    return quantizable(
        candidate.model, OPSETS["int16"], correct_biases, candidate.floats, candidate.methods, candidate.wide
    )


LEAST_GAIN = 1.0
"""Decibels of merit for which a rewrite is kept: less may be chance."""

Within = Callable[[Iterable[str]], bool]
"""Whether nodes may be changed."""


def anywhere(_: Iterable[str]) -> bool:
    """Every node may be changed."""
    return True


@dataclass(frozen=True, eq=False)
class Proposal:
    """One way to apply a rewrite.

    Attributes:
        candidate: the rewritten model.
        places: names of the nodes where something was changed.
        reason: what on the samples speaks for it.
        strength: which of the alternatives it is, between 0 and 1; 1 where there is but one.
        least_gain: decibels of merit that it must gain to be kept: more where it costs time on the NPU.
    """

    candidate: Candidate
    places: tuple[str, ...]
    reason: str
    strength: float = 1.0
    least_gain: float = LEAST_GAIN


@dataclass(frozen=True)
class Rewrite:
    """A kind of rewrite under the name by which it can be disabled.

    ``propose`` gives alternatives of which at most one is taken, from the mildest to the strongest: measuring ends with
    the first that is no better than the one before.  It gives none where nothing in the model or on the samples speaks
    for the rewrite, at nodes that may be changed.  ``concerns`` says of a model whether it has what the rewrite is
    about.
    """

    name: str
    propose: Callable[[Candidate, ChannelStatistics, Within], Iterable[Proposal]]
    concerns: Callable[[onnx.ModelProto], bool] = lambda _: True
