"""The decisions of all segments of a graph: found once, whatever is asked about them later."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.fusion.group_space import GroupSpace
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.fusion.segment import Segment, SegmentFinder
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.record import GroupDecision
from torq_byoc.schedules.signature import signature
from torq_byoc.schedules.techniques import ALL, Techniques


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
        if choice is None or self.segment is self.shared.segment:
            return choice
        names = tuple(node.name for node in self.segment.nodes)
        return replace(choice, decision=replace(choice.decision, nodes=names))


class SegmentSpaces:
    """The decisions of every run of nodes of one graph.

    Args:
        graph: the graph.
        nodes: its scheduled nodes, in order.
        models: a model for every node name.
        config: the machine.
        weights: constants of the cost model.
        techniques: what decisions may make use of.
    """

    def __init__(
        self,
        graph: OpGraph,
        nodes: Sequence[Node],
        models: Mapping[str, NodeModel],
        config: NpuConfig,
        weights: CostWeights,
        techniques: Techniques = ALL,
    ) -> None:
        self.nodes, self.config, self.weights, self.techniques = nodes, config, weights, techniques
        self._finder = SegmentFinder(graph, nodes, models)
        self._signatures = {node.name: (signature(graph, node), models[node.name].config.slices) for node in nodes}
        self._shared: dict[Hashable, GroupSpace] = {}
        """By what segments have in common: signatures of their nodes, wiring, what leaves them."""
        self._spaces: dict[tuple[int, int], SegmentSpace | None] = {}

    def space(self, first: int, last: int) -> SegmentSpace | None:
        """The decisions of nodes first..last; None when they cannot be fused."""
        key = (first, last)
        if key not in self._spaces:
            segment = self._finder.segment(first, last)
            self._spaces[key] = None if segment is None else self._share(segment)
        return self._spaces[key]

    def _share(self, segment: Segment) -> SegmentSpace:
        places = self._places(segment)
        order = {name: index for index, name in enumerate(places)}
        wiring = tuple(
            (order[node.output], *(order[name] for name in segment.names[index]))
            for index, node in enumerate(segment.nodes)
        )
        flags = tuple((name in segment.internal, name in segment.outputs) for name in places)
        key = (tuple(self._signatures[node.name] for node in segment.nodes), wiring, flags)
        if key not in self._shared:
            self._shared[key] = GroupSpace(segment, self.config, self.weights, self.techniques)
        shared = self._shared[key]
        return SegmentSpace(segment, shared, dict(zip(places, self._places(shared.segment), strict=True)))

    def _places(self, segment: Segment) -> list[str]:
        """All tensors of a segment in the order in which its nodes name them."""
        names = [name for index, node in enumerate(segment.nodes) for name in (*segment.names[index], node.output)]
        return list(dict.fromkeys(names))
