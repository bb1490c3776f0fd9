"""What the search may make use of: each technique can be switched off, to see what it is worth."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from torq_byoc.schedules.record import GroupDecision, NodeOverride


@dataclass(frozen=True)
class Techniques:
    """Techniques that decisions may use.  What is switched off is not taken from a decision record either.

    Attributes:
        fusion: neighbouring nodes run band by band.
        residency: tensors stay in LRAM from their producer to their last reader.
        double_buffering: room for two tiles of every operand.
        slice_split: a tile is divided between the slices.
    """

    fusion: bool = True
    residency: bool = True
    double_buffering: bool = True
    slice_split: bool = True

    @classmethod
    def without(cls, disabled: Collection[str]) -> Techniques:
        """All but those among the disabled passes (names as ``--disable-pass`` takes them)."""
        return cls(
            fusion="fusion" not in disabled,
            residency="residency" not in disabled,
            double_buffering="double-buffering" not in disabled,
            slice_split="slice-split" not in disabled,
        )

    def narrowed(self, fixed: NodeOverride) -> NodeOverride:
        """What is fixed of a node's decision, and what the techniques that are off fix.

        Portions that both slices were meant to sum up may be too large for one: these are left to the search.
        """
        if not self.double_buffering:
            fixed = replace(fixed, buffers=1)
        if not self.slice_split:
            portions = replace(fixed, tile=None, portion=None) if fixed.portion else fixed
            fixed = replace(portions, split_axis=(None,))
        return fixed

    def narrowed_group(self, fixed: GroupDecision) -> GroupDecision:
        """A group of a record without the techniques that are off."""
        if not self.double_buffering:
            fixed = replace(fixed, buffers=1)
        if not self.slice_split:
            fixed = replace(fixed, split_axes=(None,) * len(fixed.nodes))
        return fixed


ALL = Techniques()
