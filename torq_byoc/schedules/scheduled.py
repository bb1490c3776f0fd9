"""The schedule of a graph: decisions applied, as plain data for code generation."""

from __future__ import annotations

from dataclasses import dataclass

from torq_byoc.schedules.fusion.group import FusedGroup
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeDecision
from torq_byoc.schedules.tiles import Tile


@dataclass(frozen=True)
class NodeSchedule:
    """One node of a schedule.

    Attributes:
        node: name of the node.
        decision: how it is cut and run, on its own or with its group.
        tiles: in execution order.
        estimate: cycles that the cost model expects; an even share of a group's.
    """

    node: str
    decision: NodeDecision | GroupDecision
    tiles: tuple[Tile, ...]
    estimate: float = 0.0

    def on_its_own(self) -> NodeDecision:
        """The decision as one about this node alone: for a node of a group, the extents of its middle band."""
        if isinstance(self.decision, NodeDecision):
            return self.decision
        extent = self.tiles[len(self.tiles) // 2].output.extent
        split_axis = self.decision.split_axes[self.decision.nodes.index(self.node)]
        return NodeDecision(extent, tuple(range(len(extent))), split_axis, self.decision.buffers)


@dataclass(frozen=True)
class Schedule:
    """The schedule of a graph.

    Attributes:
        nodes: in graph order; reshapes and bitcasts, which move no data, have no entry.
        resident: tensors that stay in LRAM as a whole, dense row-major, from their producer to their
            last reader.  A tensor's aliases are resident with it.  All others live in XRAM, but for those
            that a fused group keeps.
        record: the decisions as data; feeding it back gives this schedule again.
        groups: nodes that run band by band; their tiles are those of the bands.
        expected: cycles that the cost model expects of the whole chain.
    """

    nodes: tuple[NodeSchedule, ...]
    resident: frozenset[str]
    record: DecisionRecord
    groups: tuple[FusedGroup, ...] = ()
    expected: float = 0.0
