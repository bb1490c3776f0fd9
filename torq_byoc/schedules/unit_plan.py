"""Groups and residency of a graph, and what they cost: what the search turns over before any tile is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.chain import Cut, Unit
from torq_byoc.schedules.cost_model import FEWER_TILES
from torq_byoc.schedules.decide import Choice
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.record import GroupDecision, NodeDecision

Settled = tuple[tuple[NodeDecision | GroupDecision | None, ...], frozenset[str]]
"""Decisions of all units in order, and resident storages."""


@dataclass(frozen=True)
class Plan:
    """Groups and residency, priced.

    Attributes:
        groups: first and last node of every fused group.
        units: groups and the nodes between them, in order.
        choices: the cheapest decision of every unit; None where it does not fit.
        live: resident storages beside every unit.
        chosen: all resident storages.
        end: of the units as one chain.
    """

    groups: tuple[tuple[int, int], ...]
    units: tuple[tuple[int, int], ...]
    choices: tuple[Choice | GroupChoice | None, ...]
    live: tuple[frozenset[str], ...]
    chosen: frozenset[str]
    end: Cut

    @property
    def settled(self) -> Settled:
        """All that its program depends on: plans of one graph and machine that agree on it have the same program."""
        return tuple(choice.decision if choice else None for choice in self.choices), self.chosen

    @property
    def expected(self) -> float:
        """Cycles of the whole chain."""
        return self.end.cycles

    @property
    def tiles(self) -> int:
        """Steps of all units, those aside that do not fit."""
        costs = (choice.cost if isinstance(choice, Choice) else choice for choice in self.choices if choice)
        return sum(cost.tiles for cost in costs)

    @property
    def cost(self) -> float:
        """Rank of all units together, each priced by itself."""
        return sum(choice.rank[0] if choice else float("inf") for choice in self.choices)


def unit_of(choice: Choice | GroupChoice, resident: int, config: NpuConfig) -> Unit:
    """A priced decision as a part of a chain, beside so many bytes of resident tensors."""
    cost = choice.cost if isinstance(choice, Choice) else choice
    flow, room = cost.flow, max(0, config.lram_usable - resident - cost.demand)
    return Unit(
        flow,
        min(cost.constants, flow.loads),
        min(cost.largest, flow.loads),
        cost.shares,
        cost.along,
        room / config.dma_bytes_per_cycle,
        cost.tiles,
        FEWER_TILES * cost.tiles + choice.crowding,
    )


def units_of(count: int, groups: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Groups and the single nodes between them, in order."""
    units: list[tuple[int, int]] = []
    for first, last in (*groups, (count, count)):
        start = units[-1][1] + 1 if units else 0
        units += [(index, index) for index in range(start, first)]
        if first < count:
            units.append((first, last))
    return units
