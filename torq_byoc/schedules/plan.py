"""The schedule of a graph: decisions applied, as plain data for code generation.

``schedule`` is the entry point of the floor.  It prices every node (``decide``), plans which tensors stay
in LRAM (``residency``), and turns the decisions into tiles whose operand regions are read back from the
scheduled TIR function of each node (``regions``).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torq_byoc.errors import ScheduleError, TorqError
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.decide import FREE, Choice, NodeSpace
from torq_byoc.schedules.node_model import NodeModel, Residency
from torq_byoc.schedules.node_tiles import tiles_of
from torq_byoc.schedules.overflow import overflow_error
from torq_byoc.schedules.overrides import check_nodes, forced_residency
from torq_byoc.schedules.record import DecisionRecord, NodeDecision
from torq_byoc.schedules.residency import Planner, storages
from torq_byoc.schedules.signature import signature
from torq_byoc.schedules.tiles import Tile

__all__ = ["DecisionRecord", "NodeDecision", "NodeSchedule", "Schedule", "Tile", "schedule"]

_SWEEPS = (0, 1, 4, 16)


@dataclass(frozen=True)
class NodeSchedule:
    """One node of a schedule.

    Attributes:
        node: name of the node.
        decision: how it is cut and run.
        tiles: in execution order.
        estimate: cycles that the cost model expects.
    """

    node: str
    decision: NodeDecision
    tiles: tuple[Tile, ...]
    estimate: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """The schedule of a graph.

    Attributes:
        nodes: in graph order; reshapes and bitcasts, which move no data, have no entry.
        resident: tensors that stay in LRAM as a whole, dense row-major, from their producer to their
            last reader; all others live in XRAM.  A tensor's aliases are resident with it.
        record: the decisions as data; feeding it back gives this schedule again.
    """

    nodes: tuple[NodeSchedule, ...]
    resident: frozenset[str]
    record: DecisionRecord


def schedule(
    graph: OpGraph,
    config: NpuConfig,
    *,
    effort: int = 1,
    overrides: DecisionRecord | None = None,
    budget: float = 1.0,
) -> Schedule:
    """Decide tiles, loop order, slice split, buffering and residency for every node of a graph.

    Args:
        graph: the operator graph of one partition.
        config: the machine.
        effort: 0 (fast) to 3 (thorough): how many candidates are priced.
        overrides: fields fixed by hand, or a complete record of an earlier schedule.
        budget: fraction of the usable LRAM that the schedule may plan with.

    Raises:
        LramOverflowError: the smallest tile of a node does not fit; ``details`` holds the demand report.
        ScheduleError: an override does not apply to this graph or machine; names node and field.
    """
    return _Scheduler(graph, config, effort, overrides or DecisionRecord(), int(config.lram_usable * budget)).run()


class _Scheduler:
    """One run of ``schedule``: models and spaces shared between nodes of equal signature."""

    def __init__(
        self, graph: OpGraph, config: NpuConfig, effort: int, overrides: DecisionRecord, capacity: int
    ) -> None:
        if not 0 <= effort <= 3:
            raise ScheduleError(
                "there is no such effort", why=f"effort is {effort}, known are 0 to 3", remedy="choose one of them"
            )
        self.graph, self.config, self.effort, self.capacity = graph, config, effort, capacity
        self.overrides, self.weights = overrides, CostWeights()
        self.nodes = [node for node in graph.nodes if node.op not in ALIAS_OPS]
        self.models = self._models()
        self.spaces: dict[Hashable, NodeSpace] = {}
        check_nodes(overrides, self.models)
        self.storages = storages(graph, self.nodes, self._streamed, self._phased, config.lram_word)
        self.nbytes = {storage.name: storage.nbytes for storage in self.storages}
        self.root = {tensor: storage.name for storage in self.storages for tensor in storage.tensors}

    def _models(self) -> dict[str, NodeModel]:
        """A model for every node name, shared between nodes of equal signature."""
        shared: dict[Hashable, NodeModel] = {}
        models = {}
        for node in self.nodes:
            key = signature(self.graph, node)
            if key not in shared:
                shared[key] = NodeModel(self.graph, node, self.config)
            models[node.name] = shared[key]
        return models

    def run(self) -> Schedule:
        """Plan, decide and build the tiles."""
        for index in range(len(self.nodes)):
            if self._choice(index, frozenset()) is None:
                raise self._does_not_fit(index, frozenset())
        forced = forced_residency(self.overrides, self.root)
        planner = Planner(self.storages, len(self.nodes), self._price, forced)
        chosen = planner.run(_SWEEPS[self.effort])
        scheduled = tuple(self._schedule_node(index, frozenset(live)) for index, live in enumerate(planner.live))
        resident = frozenset(tensor for tensor, root in self.root.items() if root in chosen)
        record = DecisionRecord(
            {entry.node: entry.decision.to_override() for entry in scheduled},
            {tensor: tensor in resident for tensor in self.root},
        )
        return Schedule(scheduled, resident, record)

    def _schedule_node(self, index: int, live: frozenset[str]) -> NodeSchedule:
        choice = self._choice(index, live)
        if choice is None:
            raise self._does_not_fit(index, live)
        node = self.nodes[index]
        model = self.models[node.name]
        tiles = tiles_of(self.graph, node, model, choice.decision)
        return NodeSchedule(node.name, choice.decision, tiles, choice.cost.cycles)

    def _price(self, index: int, live: frozenset[str]) -> tuple[float, float] | None:
        choice = self._choice(index, live)
        return None if choice is None else choice.cost.rank

    def _choice(self, index: int, live: frozenset[str]) -> Choice | None:
        available = self.capacity - sum(self.nbytes[name] for name in live)
        return self._space(index, live).best(available) if available > 0 else None

    def _space(self, index: int, live: frozenset[str]) -> NodeSpace:
        node = self.nodes[index]
        inputs = tuple(self.root.get(name) in live for name in self._streamed(node))
        residency = Residency(inputs, self.root.get(node.output) in live)
        fixed = self.overrides.nodes.get(node.name, FREE)
        model = self.models[node.name]
        key = (id(model), residency, fixed)
        if key not in self.spaces:
            self.spaces[key] = NodeSpace(model, residency, self.weights, self.effort, fixed)
        return self.spaces[key]

    def _streamed(self, node: Node) -> list[str]:
        return [node.inputs[position] for position in self.models[node.name].inputs]

    def _phased(self, node: Node) -> list[str]:
        model = self.models[node.name]
        return [name for index, name in enumerate(self._streamed(node)) if model.layout(index).phases != (1, 1)]

    def _does_not_fit(self, index: int, live: frozenset[str]) -> TorqError:
        """The error for a node without a decision: an override's fault when there is one, else the LRAM's."""
        node = self.nodes[index]
        if node.name not in self.overrides.nodes and not live:
            return overflow_error(self.models[node.name], self._space(index, live).smallest(), self.capacity)
        smallest = self._space(index, live).smallest().cost.demand
        held = sum(self.nbytes[name] for name in live)
        return ScheduleError(
            "the decisions fixed by hand do not fit the LRAM",
            where=f"node {node.name!r}",
            why=f"it needs at least {smallest} B beside {held} B of resident tensors; {self.capacity} B are usable",
            remedy="reduce its tile, set buffers to 1, or keep fewer tensors resident",
        )
