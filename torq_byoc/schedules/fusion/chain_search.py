"""Which nodes to fuse for the chain as a whole: dynamic programming over the nodes, with several plans at each cut.

One number says which of two partial plans is better only when nothing that follows depends on more.  Here it does
(``chain.Cut``): a plan whose slices are free later may have its loads further ahead.  So every cut between two nodes
has a front: the partial plans that none of the others beats in everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torq_byoc.schedules.chain import Cut, Unit

FRONT = 6
"""Partial plans that are kept at a cut: more of them find no better plans in the networks of the benchmarks."""


class Partial(NamedTuple):
    """A plan of the nodes before a cut: its end, the first node of its last unit, and the plan before that unit."""

    cut: Cut
    first: int = 0
    before: Partial | None = None

    def groups(self, count: int) -> list[tuple[int, int]]:
        """The units of several nodes (first, last) among so many nodes in all, in order."""
        groups, end = [], count
        partial = self
        while partial.before is not None:
            if end - partial.first > 1:
                groups.append((partial.first, end - 1))
            end, partial = partial.first, partial.before
        return groups[::-1]


def fastest_chain(
    nodes: Sequence[Unit | None], segments: Mapping[int, Sequence[tuple[int, Unit]]]
) -> list[tuple[int, int]]:
    """Segments (first, last) whose fusion makes the whole chain cheapest, in order.

    Args:
        nodes: every node on its own; None where it does not fit.
        segments: for every last node, the first nodes of the segments that may be fused.

    Returns:
        Nothing when no plan fits.
    """
    fronts = [[Partial(Cut())]]
    for last, node in enumerate(nodes):
        ways = [*([(last, node)] if node else []), *segments.get(last, ())]
        fronts.append(front([Partial(p.cut.then(unit), first, p) for first, unit in ways for p in fronts[first]]))
    best = min(fronts[-1], key=lambda partial: partial.cut.price, default=None)
    return best.groups(len(nodes)) if best else []


def front(partials: Sequence[Partial]) -> list[Partial]:
    """Those that no other one beats in everything; of more than ``FRONT`` the cheapest ones, and of the others the
    one whose channel is free first, and the one whose slices are."""
    kept: list[Partial] = []
    for partial in sorted(partials, key=lambda partial: (partial.cut.price, partial.cut.loads)):
        if not any(partial.cut.beaten_by(other.cut) for other in kept):
            kept.append(partial)
    if len(kept) <= FRONT:
        return kept
    cheapest, others = kept[: FRONT - 2], kept[FRONT - 2 :]
    least_loads = others.pop(min(range(len(others)), key=lambda at: others[at].cut.loads + others[at].cut.extra))
    least_work = min(others, key=lambda partial: partial.cut.work + partial.cut.extra)
    return [*cheapest, least_loads, least_work]
