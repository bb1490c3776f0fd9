"""A float model in another form, about to be quantized, and what proposes such forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import onnx

from torq_byoc.quantize.rewrites.channel_statistics import ChannelStatistics


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model to quantize.

    Attributes:
        model: prepared, float32; computes what the user's model computes, in real arithmetic.
        floats: names of nodes that stay float, on the CPU.
    """

    model: onnx.ModelProto
    floats: frozenset[str] = frozenset()

    def rewritten(self, model: onnx.ModelProto, floats: Iterable[str] = ()) -> Candidate:
        """The same choices with another model that computes the same, and further nodes that stay float."""
        return Candidate(model, self.floats.union(floats))


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
    """

    candidate: Candidate
    places: tuple[str, ...]
    reason: str
    strength: float = 1.0


@dataclass(frozen=True)
class Rewrite:
    """A kind of rewrite under the name by which it can be disabled.

    ``propose`` gives alternatives of which at most one is taken, from the mildest to the strongest: measuring ends with
    the first that is no better than the one before.  It gives none where nothing in the model or on the samples speaks
    for the rewrite, at nodes that may be changed.
    """

    name: str
    propose: Callable[[Candidate, ChannelStatistics, Within], Iterable[Proposal]]
