"""Which nodes to fuse: every promising segment is priced, and the best set without overlaps is taken.

The choice is exact for given prices: dynamic programming over the nodes in order (weighted intervals).
Prices depend on what is resident, so the scheduler alternates between this and the residency planner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from torq_byoc.schedules.cost_model import Cost
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.fusion.segment_spaces import SegmentSpace, SegmentSpaces

LONGEST = (0, 10, 16, 24)
"""Nodes of the longest segment that is priced, by effort; effort 0 fuses nothing."""
LEAST_SAVING = 200
"""Cycles that a segment must be able to save to be priced."""

PricedSegments = Mapping[int, Sequence[tuple[int, GroupChoice]]]
"""For every last node, the first nodes of segments and how they would be run."""


class GroupSearch:
    """Finds and prices segments of one graph.

    Args:
        spaces: the decisions of its segments.
        effort: 0..3.
        alone: nodes that stay on their own.
        outside: storages that no group may keep to itself.
    """

    def __init__(
        self, spaces: SegmentSpaces, effort: int, alone: Collection[str] = (), outside: Collection[str] = ()
    ) -> None:
        self.spaces, self.nodes = spaces, spaces.nodes
        self.longest, self.alone, self.outside = LONGEST[effort], frozenset(alone), frozenset(outside)

    def best_groups(self, alone: Sequence[float], segments: PricedSegments) -> list[tuple[int, int]]:
        """Segments (first, last) whose fusion saves most in total, each of them priced by itself, in order.

        Args:
            alone: rank of every node on its own; infinite where it does not fit.
            segments: what may be fused (see ``priced_segments``).
        """
        count = len(self.nodes)
        least = [0.0] * (count + 1)
        taken: list[int | None] = [None] * (count + 1)
        for end in range(1, count + 1):
            least[end] = least[end - 1] + alone[end - 1]
            for first, choice in segments.get(end - 1, ()):
                if least[first] + choice.rank[0] < least[end]:
                    least[end], taken[end] = least[first] + choice.rank[0], first
        groups = []
        end = count
        while end:
            start = taken[end]
            if start is not None:
                groups.append((start, end - 1))
            end = end - 1 if start is None else start
        return groups[::-1]

    def priced_segments(
        self, costs: Sequence[Cost | None], choose: Callable[[int, int, SegmentSpace], GroupChoice | None]
    ) -> PricedSegments:
        """The segments whose fusion may save something, each with its decision.

        Args:
            costs: every node on its own; None where it does not fit.
            choose: the cheapest decision of a segment with what is left of the LRAM.
        """
        segments: dict[int, list[tuple[int, GroupChoice]]] = {}
        for first in range(len(self.nodes)):
            idle = 0.0
            for last in range(first, min(first + self.longest, len(self.nodes))):
                cost = costs[last]
                idle += cost.cycles - cost.slices if cost else float("inf")
                if last == first or idle < LEAST_SAVING:
                    continue
                space = self.spaces.space(first, last)
                if space is None or self._barred(space.segment):
                    continue
                choice = choose(first, last, space)
                if choice is not None:
                    segments.setdefault(last, []).append((first, choice))
        return segments

    def _barred(self, segment: Segment) -> bool:
        return bool(self.alone & {node.name for node in segment.nodes} or self.outside & segment.kept)
