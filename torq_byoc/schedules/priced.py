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
from torq_byoc.schedules.fusion.search import PricedGroups
from torq_byoc.schedules.node_model import NodeModel, shared_models
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.record import NodeOverride


@dataclass(eq=False)
class Priced:
    """Prices of one graph on one machine, with one record and the same techniques; it grows.

    Attributes:
        groups: of segments.
    """

    groups: PricedGroups = field(default_factory=dict)
    _models: dict[str, NodeModel] = field(default_factory=dict)
    _spaces: dict[Hashable, NodeSpace] = field(default_factory=dict)

    def models(
        self, graph: OpGraph, nodes: Sequence[Node], config: NpuConfig, slices: Mapping[str, int]
    ) -> Mapping[str, NodeModel]:
        """See ``node_model.shared_models``."""
        if not self._models:
            self._models = shared_models(graph, nodes, config, slices)
        return self._models

    def space(
        self, model: NodeModel, residency: Residency, weights: CostWeights, effort: int, fixed: NodeOverride
    ) -> NodeSpace:
        """All decisions of a node under one residency; nodes that share a model share them."""
        key = (id(model), residency, effort, fixed)
        if key not in self._spaces:
            self._spaces[key] = NodeSpace(model, residency, weights, effort, fixed)
        return self._spaces[key]
