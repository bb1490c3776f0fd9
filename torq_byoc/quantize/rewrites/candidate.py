"""A float model in another form, about to be quantized, and what proposes such forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx

from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model to quantize.

    Attributes:
        model: prepared, float32; computes what the user's model computes, in real arithmetic.
        floats: names of nodes that stay float, on the CPU.
        methods: calibrators of the tensors that have one of their own.
    """

    model: onnx.ModelProto
    floats: frozenset[str] = frozenset()
    methods: Mapping[str, str] = field(default_factory=dict)

    def rewritten(
        self, model: onnx.ModelProto, floats: Iterable[str] = (), methods: Mapping[str, str] | None = None
    ) -> Candidate:
        """The same choices with another model that computes the same, further floats and further calibrators."""
        return Candidate(model, self.floats.union(floats), {**self.methods, **(methods or {})})


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
    for the rewrite, at nodes that may be changed.
    """

    name: str
    propose: Callable[[Candidate, ChannelStatistics, Within], Iterable[Proposal]]
