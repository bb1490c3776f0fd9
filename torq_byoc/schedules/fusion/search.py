"""Which nodes to fuse: every promising segment is priced, and the best set without overlaps is taken.

The choice is exact for given prices: dynamic programming over the nodes in order (weighted intervals).
Prices depend on what is resident, so the scheduler alternates between this and the residency planner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import Cost, CostWeights
from torq_byoc.schedules.fusion.group_space import GroupSpace
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.fusion.segment import Segment, SegmentFinder
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.record import GroupDecision
from torq_byoc.schedules.signature import signature
from torq_byoc.schedules.techniques import ALL, Techniques

LONGEST = (0, 10, 16, 24)
"""Nodes of the longest segment that is priced, by effort; effort 0 fuses nothing."""
LEAST_SAVING = 200
"""Cycles that a segment must be able to save to be priced."""

PricedGroups = dict[Hashable, GroupSpace]
"""Decisions of segments by what they have in common: signatures of their nodes, wiring, what leaves them."""
PricedSegments = Mapping[int, Sequence[tuple[int, GroupChoice]]]
"""For every last node, the first nodes of segments and how they would be run."""


@dataclass(frozen=True)
class SegmentSpace:
    """The decisions of one segment; segments of the same shape share their prices.

    Attributes:
        segment: the nodes.
        shared: prices, of a segment like this one.
        names: tensors of this segment -> tensors of the shared one.
    """

    segment: Segment
    shared: GroupSpace
    names: Mapping[str, str]

    def best(self, available: int, resident: frozenset[str]) -> GroupChoice | None:
        """See ``GroupSpace.best``."""
        here = frozenset(self.names[name] for name in resident)
        return self._renamed(self.shared.best(available, here))

    def priced(self, decision: GroupDecision, resident: frozenset[str]) -> GroupChoice | None:
        """See ``GroupSpace.priced``."""
        here = frozenset(self.names[name] for name in resident)
        return self._renamed(self.shared.priced(decision, here))

    def can_divide(self, decision: GroupDecision) -> bool:
        """Whether the segment can be divided so at all."""
        return self.shared.can_divide(decision)

    def _renamed(self, choice: GroupChoice | None) -> GroupChoice | None:
        if choice is None:
            return None
        names = tuple(node.name for node in self.segment.nodes)
        return replace(choice, decision=replace(choice.decision, nodes=names))


class GroupSearch:
    """Finds and prices segments of one graph.

    Args:
        graph: the graph.
        nodes: its scheduled nodes, in order.
        models: a model for every node name.
        config: the machine.
        weights: constants of the cost model.
        effort: 0..3.
        alone: nodes that stay on their own.
        outside: storages that no group may keep to itself.
        techniques: what decisions may make use of.
        priced: what an earlier search knows of this graph, for the same machine and techniques; it grows.
    """

    def __init__(
        self,
        graph: OpGraph,
        nodes: Sequence[Node],
        models: Mapping[str, NodeModel],
        config: NpuConfig,
        weights: CostWeights,
        effort: int,
        alone: Collection[str] = (),
        outside: Collection[str] = (),
        techniques: Techniques = ALL,
        priced: PricedGroups | None = None,
    ) -> None:
        self.graph, self.nodes, self.config, self.weights = graph, nodes, config, weights
        self.techniques = techniques
        self.longest, self.alone, self.outside = LONGEST[effort], frozenset(alone), frozenset(outside)
        self.finder = SegmentFinder(graph, nodes, models)
        self.signatures = {node.name: (signature(graph, node), models[node.name].config.slices) for node in nodes}
        self._shared: PricedGroups = {} if priced is None else priced
        self._spaces: dict[tuple[int, int], SegmentSpace | None] = {}

    def space(self, first: int, last: int) -> SegmentSpace | None:
        """The decisions of nodes first..last; None when they cannot be fused."""
        key = (first, last)
        if key not in self._spaces:
            segment = self.finder.segment(first, last)
            self._spaces[key] = None if segment is None else self._share(segment)
        return self._spaces[key]

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
                space = self.space(first, last)
                if space is None or self._barred(space.segment):
                    continue
                choice = choose(first, last, space)
                if choice is not None:
                    segments.setdefault(last, []).append((first, choice))
        return segments

    def _barred(self, segment: Segment) -> bool:
        return bool(self.alone & {node.name for node in segment.nodes} or self.outside & segment.kept)

    def _share(self, segment: Segment) -> SegmentSpace:
        places = self._places(segment)
        order = {name: index for index, name in enumerate(places)}
        wiring = tuple(
            (order[node.output], *(order[name] for name in segment.names[index]))
            for index, node in enumerate(segment.nodes)
        )
        flags = tuple((name in segment.internal, name in segment.outputs) for name in places)
        key = (tuple(self.signatures[node.name] for node in segment.nodes), wiring, flags)
        if key not in self._shared:
            self._shared[key] = GroupSpace(segment, self.config, self.weights, self.techniques)
        shared = self._shared[key]
        return SegmentSpace(segment, shared, dict(zip(places, self._places(shared.segment), strict=True)))

    def _places(self, segment: Segment) -> list[str]:
        """All tensors of a segment in the order in which its nodes name them."""
        names = [name for index, node in enumerate(segment.nodes) for name in (*segment.names[index], node.output)]
        return list(dict.fromkeys(names))
