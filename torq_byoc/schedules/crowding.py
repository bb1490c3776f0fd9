"""What it costs to fill the LRAM to the brim.

Before: the cheapest decision that fits, whatever room it leaves.  After: one that leaves hardly any is a little dearer,
so that it must be worth it.  What comes free beside it lies in pieces: a second buffer, or the first loads of the next
node, may find no place although there would be enough room in all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

ROOM = 0.02
"""Share of the LRAM that a decision should leave beside itself and what is resident."""
COST = 0.05
"""How much dearer it is to leave less.  Fused groups that do took 16 % more cycles than estimated, on average over ten
networks of the benchmarks with 512, 256 and 128 KiB, where others took 3 %; but most of them did find their room."""


class PricedDecision(Protocol):
    """A decision with its price."""

    @property
    def demand(self) -> int:
        """Bytes of LRAM."""
        ...

    @property
    def rank(self) -> tuple[float, float]:
        """What the search minimises."""
        ...

    def crowded(self, share: float) -> Self:
        """The same decision, that share of its cycles dearer."""
        ...


AnyPriced = TypeVar("AnyPriced", bound=PricedDecision)


def least_crowded(best: Callable[[int], AnyPriced | None], available: int, usable: int) -> AnyPriced | None:
    """The cheapest decision when those that leave hardly any room are dearer.

    Args:
        best: the cheapest decision in so many bytes; None where there is none.
        available: bytes beside what is resident.
        usable: bytes of the LRAM that the plan makes do with.
    """
    found, roomy = best(available), available - int(ROOM * usable)
    if found is None or found.demand <= roomy:
        return found
    crowded, other = found.crowded(COST), best(roomy) if roomy > 0 else None
    return crowded if other is None or crowded.rank <= other.rank else other
