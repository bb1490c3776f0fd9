"""The search at one node: the cheapest decision that fits a given amount of LRAM.

Candidates are bounded from below with closed forms (transfers exactly, slices as if every tile were as
efficient as the whole), sorted, and priced in that order until the bound passes the best price.
The answer for one amount of LRAM is the answer for every amount down to its own demand, so the residency
planner can ask often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from torq_byoc.schedules import candidates
from torq_byoc.schedules.cost_model import FEWER_TILES, Cost, CostWeights, estimate, pipeline
from torq_byoc.schedules.node_model import NodeModel, Residency
from torq_byoc.schedules.record import NodeDecision, NodeOverride
from torq_byoc.schedules.traffic import TilingTable, Traffic

FREE = NodeOverride()
_TILINGS = (100, 400, 1500, 4000)
_PRICED = (6, 16, 128, 1 << 30)
_FINALISTS = 4


@dataclass(frozen=True)
class Choice:
    """A priced decision."""

    decision: NodeDecision
    cost: Cost


class NodeSpace:
    """All decisions of a node under one residency of its operands.

    Args:
        model: the node.
        residency: which operands are resident.
        weights: constants of the cost model.
        effort: 0..3, how many candidates are listed and priced.
        fixed: fields that an override fixes.
    """

    def __init__(
        self, model: NodeModel, residency: Residency, weights: CostWeights, effort: int, fixed: NodeOverride = FREE
    ) -> None:
        self.model, self.residency, self.weights, self.fixed = model, residency, weights, fixed
        self._most_priced = _PRICED[effort]
        self._list(
            candidates.tilings(model.shape, model.steps, _TILINGS[effort]) if fixed.tile is None else [fixed.tile]
        )
        self._rough: dict[int, list[Choice]] = {}
        self._exact: dict[NodeDecision, Choice] = {}
        self._answers: list[tuple[int, Choice | None]] = []

    def best(self, available: int) -> Choice | None:
        """The cheapest decision whose demand is at most ``available`` bytes; None when there is none."""
        fitting = []
        for asked, known in self._answers:
            if available == asked or (known is not None and known.cost.demand <= available < asked):
                return known
            if known is not None and known.cost.demand <= available:
                fitting.append(known)
        found = self._search(available)
        choice = min([*fitting, found], key=lambda option: option.cost.rank) if found else found
        self._answers.append((available, choice))
        return choice

    def smallest(self) -> Choice:
        """The decision with the least demand, whatever its cost: what an overflow report shows."""
        index = int(np.argmin(self._demand))
        decision = self._candidate(index)[0]
        axis = None if self.fixed.split_axis is None else self.fixed.split_axis[0]
        return self._exactly(index, replace(decision, split_axis=axis))

    def _list(self, tiles: list[tuple[int, ...]]) -> None:
        """Fill the sorted arrays of candidates: bound, demand, and what each one is."""
        table = TilingTable(self.model, tiles)
        cuts = table.counts.max(axis=0).tolist()
        orders = [self.fixed.order] if self.fixed.order else candidates.orders(cuts, table.moves())
        bounds, demands, kinds = [], [], []
        self._moved: dict[tuple[int, ...], Traffic] = {}
        for order in orders:
            moved = table.traffic(order, self.residency)
            self._moved[order] = moved
            for buffers in (self.fixed.buffers,) if self.fixed.buffers else (2, 1):
                bounds.append(self._bounds(table, moved, buffers))
                demands.append(moved.demand(buffers))
                kinds.append((order, buffers))
        bound = np.concatenate(bounds) + FEWER_TILES * np.tile(table.total, len(kinds))
        demand = np.concatenate(demands)
        by_bound = np.lexsort((demand, bound))
        fresh = _first_of_equals(
            np.stack([bound, demand, np.tile(np.arange(len(tiles)), len(kinds))], axis=1)[by_bound]
        )
        self._tiles, self._kinds, self._which = tiles, kinds, by_bound[fresh]
        self._bound, self._demand = bound[self._which], demand[self._which]

    def _bounds(self, table: TilingTable, moved: Traffic, buffers: int) -> np.ndarray:
        """Cycles if every tile used the slices as well as the whole output in one task would."""
        whole = self.model.tile_cost(self.model.shape, None, self.residency)
        slices = whole.cycles / self.model.config.slices
        parts = table.total
        program = parts * (whole.program_bytes / whole.tasks)
        return pipeline(self.model.config, moved, self.weights, buffers, slices, program, parts)

    def _search(self, available: int) -> Choice | None:
        """Price candidates roughly in the order of their bounds, then the best of them exactly."""
        rough: list[tuple[tuple[float, float], int, NodeDecision]] = []
        best, fitting = math.inf, 0
        indices = [int(index) for index in np.flatnonzero(self._demand <= available)]
        for index in indices:
            if self._bound[index] > best or fitting >= self._most_priced:
                break
            priced = [choice for choice in self._roughly(index) if choice.cost.demand <= available]
            rough += [(choice.cost.rank, index, choice.decision) for choice in priced]
            best = min([best, *(choice.cost.rank[0] for choice in priced)])
            fitting += bool(priced)
        exact: list[Choice] = []
        for _, index, decision in sorted(rough, key=lambda entry: entry[0]):
            choice = self._exactly(index, decision)
            if choice.cost.demand <= available:
                exact.append(choice)
            if len(exact) == _FINALISTS:
                break
        if not exact:
            return self._unsplit(indices, available)
        return min(exact, key=lambda choice: choice.cost.rank)

    def _unsplit(self, indices: list[int], available: int) -> Choice | None:
        """The last resort in little memory: one slice, with one program at a time."""
        if self.fixed.split_axis is None:
            for index in indices:
                choice = self._exactly(index, self._candidate(index)[0])
                if choice.cost.demand <= available:
                    return choice
        return None

    def _roughly(self, index: int) -> list[Choice]:
        """A candidate with each split axis worth trying."""
        if index not in self._rough:
            decision, moved = self._candidate(index)
            options = [replace(decision, split_axis=axis) for axis in self._split_axes(decision)]
            self._rough[index] = [self._priced(option, moved, exact=False) for option in options]
        return self._rough[index]

    def _exactly(self, index: int, decision: NodeDecision) -> Choice:
        if decision not in self._exact:
            self._exact[decision] = self._priced(decision, self._candidate(index)[1], exact=True)
        return self._exact[decision]

    def _priced(self, decision: NodeDecision, moved: Traffic, *, exact: bool) -> Choice:
        return Choice(decision, estimate(self.model, decision, self.residency, moved, self.weights, exact=exact))

    def _candidate(self, index: int) -> tuple[NodeDecision, Traffic]:
        """A candidate's decision, split axis still open, and its data movement."""
        kind, tile = divmod(int(self._which[index]), len(self._tiles))
        order, buffers = self._kinds[kind]
        return NodeDecision(tuple(self._tiles[tile]), tuple(order), None, buffers), self._moved[order].row(tile)

    def _split_axes(self, decision: NodeDecision) -> list[int | None]:
        if self.fixed.split_axis is not None:
            return [self.fixed.split_axis[0]]
        return candidates.split_axes(decision.tile, self.model.steps, self.model.config.slices)


def _first_of_equals(rows: np.ndarray) -> np.ndarray:
    """Indices of the first of every run of equal neighbouring rows: loop orders that change nothing."""
    if len(rows) < 2:
        return np.arange(len(rows))
    return np.concatenate([[0], 1 + np.flatnonzero(np.any(rows[1:] != rows[:-1], axis=1))])
