"""What a search finds out about the nodes and groups of a graph, for all plans of it.

Plans for different shares of the LRAM, and for other groups, ask for the prices of the same nodes and segments again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.decide import NodeSpace
from torq_byoc.schedules.fusion.segment_spaces import SegmentSpaces
from torq_byoc.schedules.node_model import NodeModel, shared_models
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.record import NodeOverride
from torq_byoc.schedules.techniques import Techniques


@dataclass(eq=False)
class Priced:
    """Prices of one graph on one machine, with one record and the same techniques; it grows."""

    _models: dict[str, NodeModel] = field(default_factory=dict)
    _spaces: dict[Hashable, NodeSpace] = field(default_factory=dict)
    _segments: SegmentSpaces | None = None

    def models(
        self, graph: OpGraph, nodes: Sequence[Node], config: NpuConfig, slices: Mapping[str, int]
    ) -> Mapping[str, NodeModel]:
        """See ``node_model.shared_models``."""
        if not self._models:
            self._models = shared_models(graph, nodes, config, slices)
        return self._models

    def segments(
        self, graph: OpGraph, nodes: Sequence[Node], config: NpuConfig, weights: CostWeights, techniques: Techniques
    ) -> SegmentSpaces:
        """The decisions of all segments; the nodes are those that have ``models``."""
        if self._segments is None:
            self._segments = SegmentSpaces(graph, nodes, self._models, config, weights, techniques)
        return self._segments

    def space(
        self, model: NodeModel, residency: Residency, weights: CostWeights, effort: int, fixed: NodeOverride
    ) -> NodeSpace:
        """All decisions of a node under one residency; nodes that share a model share them."""
        key = (id(model), residency, effort, fixed)
        if key not in self._spaces:
            self._spaces[key] = NodeSpace(model, residency, weights, effort, fixed)
        return self._spaces[key]
