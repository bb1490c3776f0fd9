"""The search for the schedule of a graph.

``schedule`` is the entry point of the floor.  It prices every node (``decide``), plans which tensors stay
in LRAM (``residency``), and turns the decisions into tiles whose operand regions are read back from the
scheduled TIR function of each node (``regions``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from torq_byoc.errors import ScheduleError, TorqError
from torq_byoc.kernels.graph import ALIAS_OPS, Node, OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.chain import Unit, chained
from torq_byoc.schedules.cost_model import Cost, CostWeights
from torq_byoc.schedules.crowding import least_crowded
from torq_byoc.schedules.decide import FREE, Choice, NodeSpace
from torq_byoc.schedules.fusion.chain_search import fastest_chain
from torq_byoc.schedules.fusion.group import FusedGroup, fused_group
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.fusion.search import GroupSearch, PricedSegments
from torq_byoc.schedules.fusion.segment_spaces import SegmentSpace
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.node_tiles import tiles_of
from torq_byoc.schedules.overflow import overflow_error
from torq_byoc.schedules.overrides import check_groups, check_nodes, check_slices, forced_residency
from torq_byoc.schedules.priced import Priced
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeDecision
from torq_byoc.schedules.residency import Planner, storages, streamed_reads
from torq_byoc.schedules.scheduled import NodeSchedule, Schedule
from torq_byoc.schedules.techniques import ALL, Techniques
from torq_byoc.schedules.unit_plan import Plan, unit_of, units_of

_SWEEPS = (0, 1, 4, 16)
_ROUNDS = (0, 3, 6, 12)
"""Turns of choosing groups and residency, by effort."""


def schedule(
    graph: OpGraph,
    config: NpuConfig,
    *,
    effort: int = 1,
    overrides: DecisionRecord | None = None,
    budget: float = 1.0,
    techniques: Techniques = ALL,
    priced: Priced | None = None,
) -> Schedule:
    """Decide tiles, loop order, slice split, buffering and residency for every node of a graph.

    Args:
        graph: the operator graph of one partition.
        config: the machine.
        effort: 0 (fast) to 3 (thorough): how many candidates are priced.
        overrides: fields fixed by hand, or a complete record of an earlier schedule.
        budget: fraction of the usable LRAM that the schedule may plan with.
        techniques: what the search may make use of.
        priced: keeps what is found out about nodes and groups from one call to the next for the same graph, machine,
            overrides and techniques, whose budgets may differ.

    Raises:
        LramOverflowError: the smallest tile of a node does not fit; ``details`` holds the demand report.
        ScheduleError: an override does not apply to this graph or machine; names node and field.
    """
    scheduler = Scheduler(graph, config, effort, overrides, budget, techniques, priced)
    return scheduler.schedule(scheduler.best())


class Scheduler:
    """The search behind ``schedule``, whose arguments it takes: models and spaces shared between nodes of equal
    signature.

    Raises:
        LramOverflowError, ScheduleError: as ``schedule``.
    """

    def __init__(
        self,
        graph: OpGraph,
        config: NpuConfig,
        effort: int = 1,
        overrides: DecisionRecord | None = None,
        budget: float = 1.0,
        techniques: Techniques = ALL,
        priced: Priced | None = None,
    ) -> None:
        if not 0 <= effort <= 3:
            raise ScheduleError(
                "there is no such effort", why=f"effort is {effort}, known are 0 to 3", remedy="choose one of them"
            )
        self.graph, self.config, self.effort = graph, config, effort
        self.capacity = int(config.lram_usable * budget)
        self.techniques = techniques
        self.overrides, self.weights = overrides or DecisionRecord(), CostWeights()
        self.nodes = [node for node in graph.nodes if node.op not in ALIAS_OPS]
        check_slices(self.overrides, {node.name for node in self.nodes}, config.slices)
        self.priced = priced or Priced()
        self.models = self.priced.models(graph, self.nodes, config, self.overrides.slices)
        check_nodes(self.overrides, self.models)
        self.storages = storages(graph, self.nodes, self.models, config.lram_word)
        self.nbytes = {storage.name: storage.nbytes for storage in self.storages}
        self.root = {tensor: storage.name for storage in self.storages for tensor in storage.tensors}
        self.forced = forced_residency(self.overrides, self.root) if techniques.residency else {}
        self.spaces = self.priced.segments(graph, self.nodes, config, self.weights, techniques)
        self.search = GroupSearch(self.spaces, effort, self.overrides.nodes, self.forced)
        self._ungrouped: Plan | None = None
        for index in range(len(self.nodes)):
            if self._alone(index) is None:
                raise self._does_not_fit(index, frozenset())

    def alone(self) -> Iterator[tuple[Node, Cost]]:
        """Every node with what it costs on its own: not in a group, and with nothing resident, unless the record fixes
        a tile that only fits beside what the record keeps resident; no tile is made."""
        for index, node in enumerate(self.nodes):
            choice = self._alone(index)
            assert choice is not None  # or the scheduler could not have been made
            yield node, choice.cost

    def best(self) -> Plan:
        """The groups of the record, else residency and groups in turn, each chosen for what the other one was."""
        if self.techniques.fusion and self.overrides.groups is not None:
            return self._fixed_plan(self.overrides.groups)
        return self._in_turns(self._proposed, lambda plan: plan.cost, _ROUNDS[self.effort])

    def best_chain(self, turns: int) -> Plan:
        """As ``best``, with groups chosen for the chain as a whole.

        It is priced with what lies between units, which makes for faster plans in many networks and for slower ones in
        some.  Nearly all of that comes with the first turn, which costs little after ``best``.

        Args:
            turns: of choosing groups and residency, at most as many as the effort allows ``best``.
        """
        if self.techniques.fusion and self.overrides.groups is not None:
            return self._fixed_plan(self.overrides.groups)
        return self._in_turns(self._proposed_chain, lambda plan: plan.end.price, min(turns, _ROUNDS[self.effort]))

    def best_without_residency(self) -> Plan:
        """As ``best``, from other groups: those that pay where nothing stays in LRAM between nodes.

        Where the LRAM is short, tensors that stay take the room of groups that would make them needless, and no turn
        gives up both.
        """
        if self.techniques.fusion and self.overrides.groups is not None:
            return self._fixed_plan(self.overrides.groups)
        nothing: list[frozenset[str]] = [frozenset()] * len(self.nodes)
        start = self._plan(self._groups_beside(nothing)) if self.techniques.fusion else self.without_groups()
        return self._in_turns(self._proposed, lambda plan: plan.cost, _ROUNDS[self.effort], start)

    def _in_turns(
        self,
        proposed: Callable[[Plan], tuple[tuple[int, int], ...]],
        cost: Callable[[Plan], float],
        turns: int,
        start: Plan | None = None,
    ) -> Plan:
        """Groups for the residency of the plan so far, and residency for them, as long as that makes it cheaper; by
        default from a plan without groups on."""
        best = start or self.without_groups()
        for _ in range(turns if self.techniques.fusion else 0):
            groups = proposed(best)
            if groups == best.groups:
                break
            plan = self._plan(groups)
            if cost(plan) >= cost(best):
                break
            best = plan
        return best

    def without_groups(self) -> Plan:
        """The best residency when every node runs on its own."""
        if self._ungrouped is None:
            self._ungrouped = self._plan(())
        return self._ungrouped

    def _fixed_plan(self, groups: Sequence[GroupDecision]) -> Plan:
        """The groups of the record, with the residency that it leaves open."""
        position = {node.name: index for index, node in enumerate(self.nodes)}
        fixed = {}
        for group, first in zip(groups, check_groups(groups, position, self.spaces), strict=True):
            fixed[(first, first + len(group.nodes) - 1)] = self.techniques.narrowed_group(group)
        return self._plan(tuple(sorted(fixed)), fixed)

    def _plan(
        self, groups: tuple[tuple[int, int], ...], fixed: Mapping[tuple[int, int], GroupDecision] | None = None
    ) -> Plan:
        """The best residency for given groups."""
        units = units_of(len(self.nodes), groups)
        spaces = {unit: space for unit in groups if (space := self.spaces.space(*unit)) is not None}
        kept = {name for space in spaces.values() for name in space.segment.kept}
        at = {index: number for number, (first, last) in enumerate(units) for index in range(first, last + 1)}
        candidates = [
            replace(storage, first=at[storage.first], last=at[storage.last])
            for storage in self.storages
            if self.techniques.residency and storage.name not in kept
        ]

        def choose(number: int, live: frozenset[str]) -> Choice | GroupChoice | None:
            unit = units[number]
            if unit not in spaces:
                return self._choice(unit[0], live)
            return self._group_choice(spaces[unit], live, (fixed or {}).get(unit))

        def price(number: int, live: frozenset[str]) -> tuple[float, float] | None:
            choice = choose(number, live)
            return None if choice is None else choice.rank

        forced = {name: value for name, value in self.forced.items() if name not in kept}
        planner = Planner(candidates, len(units), price, forced)
        chosen = planner.run(_SWEEPS[self.effort])
        live = [frozenset(live) for live in planner.live]
        choices = [choose(number, residents) for number, residents in enumerate(live)]
        end = chained(self._chain(choices, live))
        return Plan(groups, tuple(units), tuple(choices), tuple(live), chosen, end)

    def _chain(
        self, choices: Sequence[Choice | GroupChoice | None], live: Sequence[frozenset[str]]
    ) -> list[Unit | None]:
        """Priced decisions, each beside what is resident; None where one does not fit."""
        return [self._unit(choice, names) if choice else None for choice, names in zip(choices, live, strict=True)]

    def _unit(self, choice: Choice | GroupChoice, live: frozenset[str]) -> Unit:
        """A priced decision beside what is resident, as a part of a chain."""
        return unit_of(choice, sum(self.nbytes[name] for name in live), self.config)

    def _proposed(self, plan: Plan) -> tuple[tuple[int, int], ...]:
        """The groups that pay with the residency of a plan, each priced by itself."""
        return self._groups_beside(self._live(plan))

    def _groups_beside(self, live: Sequence[frozenset[str]]) -> tuple[tuple[int, int], ...]:
        """The groups that pay beside what is resident, each priced by itself."""
        alone, segments = self._priced(live)
        return tuple(
            self.search.best_groups([choice.rank[0] if choice else float("inf") for choice in alone], segments)
        )

    def _proposed_chain(self, plan: Plan) -> tuple[tuple[int, int], ...]:
        """The groups of the fastest chain with the residency of a plan."""
        live = self._live(plan)
        alone, segments = self._priced(live)
        units = {
            last: [(first, self._unit(choice, self._beside(live, first, last))) for first, choice in ending]
            for last, ending in segments.items()
        }
        return tuple(fastest_chain(self._chain(alone, live), units))

    def _live(self, plan: Plan) -> list[frozenset[str]]:
        """What a plan keeps resident beside every node."""
        chosen = [storage for storage in self.storages if storage.name in plan.chosen]
        return [frozenset(s.name for s in chosen if s.first <= index <= s.last) for index in range(len(self.nodes))]

    def _priced(self, live: Sequence[frozenset[str]]) -> tuple[list[Choice | None], PricedSegments]:
        """Every node on its own, and the segments that may be fused, beside what is resident."""
        alone = [self._choice(index, names) for index, names in enumerate(live)]

        def choose(first: int, last: int, space: SegmentSpace) -> GroupChoice | None:
            return self._group_choice(space, self._beside(live, first, last))

        return alone, self.search.priced_segments([choice.cost if choice else None for choice in alone], choose)

    def _beside(self, live: Sequence[frozenset[str]], first: int, last: int) -> frozenset[str]:
        """What is resident beside a segment and not kept by it."""
        space = self.spaces.space(first, last)
        kept = space.segment.kept if space else frozenset()
        return frozenset().union(*live[first : last + 1]) - kept

    def _group_choice(
        self, space: SegmentSpace, live: frozenset[str], fixed: GroupDecision | None = None
    ) -> GroupChoice | None:
        available = self.capacity - sum(self.nbytes[name] for name in live)
        tensors = space.segment.sources | space.segment.outputs
        resident = frozenset(name for name in tensors if self.root.get(name) in live)
        if fixed is None:
            return least_crowded(lambda room: space.best(room, resident), available, self.capacity)
        choice = space.priced(fixed, resident)
        crowded = choice is not None and live - self.forced.keys() and choice.demand > available
        return None if crowded else choice  # alone it is tried as it was asked for, whatever the estimate says

    def schedule(self, plan: Plan) -> Schedule:
        """A plan applied: tiles of every node and group."""
        resident = frozenset(tensor for tensor, root in self.root.items() if root in plan.chosen)
        scheduled: list[NodeSchedule] = []
        groups: list[FusedGroup] = []
        for (first, _), choice, live in zip(plan.units, plan.choices, plan.live, strict=True):
            if choice is None:
                raise self._does_not_fit(first, live)
            if isinstance(choice, Choice):
                scheduled.append(self._node_schedule(first, choice))
            else:
                group, entries = self._group_schedule(first, choice)
                groups.append(group)
                scheduled += entries
        record = DecisionRecord(
            {e.node: e.decision.to_override() for e in scheduled if isinstance(e.decision, NodeDecision)},
            {tensor: tensor in resident for tensor in self.root},
            tuple(choice.decision for choice in plan.choices if isinstance(choice, GroupChoice)),
            self.overrides.slices,
        )
        return Schedule(tuple(scheduled), resident, record, tuple(groups), plan.expected)

    def _node_schedule(self, index: int, choice: Choice) -> NodeSchedule:
        node = self.nodes[index]
        tiles = tiles_of(self.graph, node, self.models[node.name], choice.decision)
        return NodeSchedule(node.name, choice.decision, tiles, choice.cost.cycles)

    def _group_schedule(self, first: int, choice: GroupChoice) -> tuple[FusedGroup, list[NodeSchedule]]:
        decision = choice.decision
        space = self.spaces.space(first, first + len(decision.nodes) - 1)
        assert space is not None
        group = fused_group(space.segment, decision)
        entries = []
        for position, name in enumerate(decision.nodes):
            tiles = tuple(tile for band in group.bands for tile in band.tiles(position))
            entries.append(NodeSchedule(name, decision, tiles, choice.cycles / len(decision.nodes)))
        return group, entries

    def _choice(self, index: int, live: frozenset[str]) -> Choice | None:
        available = self.capacity - sum(self.nbytes[name] for name in live)
        if available <= 0:
            return None
        return least_crowded(self._space(index, live).best, available, self.capacity)

    def _alone(self, index: int) -> Choice | None:
        held = frozenset(s.name for s in self.storages if s.first <= index <= s.last and self.forced.get(s.name))
        return self._choice(index, frozenset()) or self._choice(index, held)

    def _space(self, index: int, live: frozenset[str]) -> NodeSpace:
        node = self.nodes[index]
        model = self.models[node.name]
        inputs = tuple(self.root.get(name) in live for name in streamed_reads(node, model))
        residency = Residency(inputs, self.root.get(node.output) in live)
        fixed = self.techniques.narrowed(self.overrides.nodes.get(node.name, FREE))
        return self.priced.space(model, residency, self.weights, self.effort, fixed)

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
