"""What a result of the check proves, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass

from torq_byoc.accuracy.layers.float_model import OPTION
from torq_byoc.accuracy.stages import Stages


@dataclass(frozen=True)
class Scope:
    """How far a verdict reaches.

    Attributes:
        against: what the NPU's results are held against.
        proven: what a verdict without misses says, in a sentence.
        not_proven: what it leaves open beyond other data than was given; empty when that is nothing.
    """

    against: str
    proven: str
    not_proven: str


def scope_of(stages: Stages) -> Scope:
    """What the check of a model can prove: with nothing but its own scales to go by, nothing about these."""
    if stages.is_held_against_itself:
        return Scope(
            "the same model in real arithmetic",
            "on this data the NPU computes what this quantized model says",
            "that its scales, zero points and weights are right: it is held against itself, and what is damaged is so"
            f" on both sides; give the float model that it was made from with {OPTION}",
        )
    whose = "the float model that it was made from" if stages.carries_scales else "the float model"
    return Scope(whose, f"on this data the NPU's outputs are as near to those of {whose} as the thresholds ask for", "")
