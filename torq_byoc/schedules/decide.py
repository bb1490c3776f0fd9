"""The search at one node: the cheapest decision that fits a given amount of LRAM.

Candidates are bounded from below with closed forms (transfers exactly, slices as if every tile were as
efficient as the whole) and priced in the order of what is expected of them (``pricing_order``) until none can be
better than the best price, or enough have been priced.
The answer for one amount of LRAM is the answer for every amount down to its own demand, so the residency
planner can ask often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules import candidates
from torq_byoc.schedules.cost_model import (
    Cost,
    CostWeights,
    estimate,
    flow_of,
    loaded_early,
    rank_of,
    tile_kinds,
)
from torq_byoc.schedules.flow import larger
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.pricing_order import Parts, PricingOrder, parts_of
from torq_byoc.schedules.record import NodeDecision, NodeOverride
from torq_byoc.schedules.slice_costs import SliceCost
from torq_byoc.schedules.tiles import tile_counts
from torq_byoc.schedules.traffic import Depth, Traffic, tiling_table

FREE = NodeOverride()
DIVIDING_SHARE = 2
"""Reductions are divided where a tile that fits PRAM would take more than this part of the LRAM with whole ones."""
NEEDY_SHARE = 2
"""A node that has at least this part of the LRAM and still finds no room may take more steps than is comfortable."""
_TILINGS = (100, 400, 1500, 4000)
_PRICED = (6, 16, 128, 1 << 30)
_FINALISTS = 4


@dataclass(frozen=True)
class Choice:
    """A priced decision.

    Attributes:
        decision, cost: the two.
        crowding: cycles that are there because the LRAM is nearly full (see ``crowding``).
    """

    decision: NodeDecision
    cost: Cost
    crowding: float = 0.0

    @property
    def demand(self) -> int:
        """Bytes of LRAM."""
        return self.cost.demand

    @property
    def rank(self) -> tuple[float, float]:
        """What the search minimises."""
        cycles, nbytes = self.cost.rank
        return cycles + self.crowding, nbytes

    def crowded(self, share: float) -> Choice:
        """The same decision, that share of its cycles dearer."""
        return Choice(self.decision, self.cost, share * self.cost.chained)


_Tilings = tuple[tuple[int, ...], int | None, list[tuple[int, ...]]]
"""Portion of the reduction, slice split (where the portion fixes it), and tiles."""


@dataclass(frozen=True)
class _Group:
    """Candidates that differ in their tiles alone, and their data movement."""

    tilings: _Tilings
    order: tuple[int, ...]
    depth: Depth
    moved: Traffic
    parts: Parts

    def candidate(self, row: int) -> tuple[NodeDecision, Traffic]:
        """The decision of a tiling, its slice split still open unless the portion fixes it; its data movement."""
        portion, split_axis, tiles = self.tilings
        return NodeDecision(tiles[row], self.order, split_axis, self.depth.buffers, portion), self.moved.row(row)


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
        self._effort = effort
        self._finer = iter(candidates.STEP_LIMITS)
        self._exact: dict[tuple[NodeDecision, Depth], Choice] = {}
        self._refine()
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
        while found is None and available * NEEDY_SHARE >= self.model.config.lram_usable and self._refine():
            found = self._search(available)
        choice = min([*fitting, found], key=lambda option: option.cost.rank) if found else found
        self._answers.append((available, choice))
        return choice

    def smallest(self) -> Choice:
        """The decision with the least demand, whatever its cost: what an overflow report shows."""
        index = int(np.argmin(self._demand))
        decision = self._candidate(index)[0]
        if self.fixed.split_axis is not None and not decision.portion:
            decision = replace(decision, split_axis=self.fixed.split_axis[0])
        return self._exactly(index, decision)

    def _refine(self) -> bool:
        """List candidates of more steps than before; False when there are none."""
        most = next(self._finer, None)
        if most is not None:
            self._list([*self._whole(_TILINGS[self._effort], most), *self._in_portions(most)])
            self._rough: dict[int, list[Choice]] = {}
        return most is not None

    def _whole(self, limit: int, most: int) -> Iterator[_Tilings]:
        """Tilings whose reductions are whole, unless portions are asked for."""
        if self.fixed.tile is not None:
            tiles = [self.fixed.tile]
        else:
            tiles = candidates.tilings(self.model.shape, self.model.steps, limit, most)
        if not self.fixed.portion:
            yield (), None, tiles

    def _in_portions(self, most: int) -> Iterator[_Tilings]:
        """Tilings whose reductions are divided, where that may help or is asked for."""
        model, fixed = self.model, self.fixed
        if fixed.portion == () or not model.reduction:
            return
        tiles = model.carried_tiles() if fixed.tile is None else [fixed.tile]
        if fixed.portion is None and not self._crowded(tiles):
            return
        by_split: dict[int | None, list[tuple[int, ...]]] = {}
        for tile in tiles:
            splits = model.carried_splits(tile)
            for axis in splits[:1] if fixed.split_axis is None else [a for a in splits if a in fixed.split_axis]:
                by_split.setdefault(axis, []).append(tile)
        for axis, sharing in by_split.items():
            steps = min(math.prod(tile_counts(model.shape, tile)) for tile in sharing)
            portions = [fixed.portion] if fixed.portion else candidates.portions(model.reduction, most // steps)
            yield from ((portion, axis, sharing) for portion in portions)

    def _crowded(self, tiles: Sequence[tuple[int, ...]]) -> bool:
        """Whether some of the tiles leave little room when their reductions are whole."""
        moved = tiling_table(self.model, tuple(tiles)).traffic(range(len(self.model.shape)), self.residency)
        return int(moved.demand(Depth.ALL).max()) * DIVIDING_SHARE > self.model.config.lram_usable

    def _list(self, tilings: Sequence[_Tilings]) -> None:
        """Fill the sorted arrays of candidates: bound, demand, and which row of which group each one is."""
        grouped = [list(self._groups_of(entry)) for entry in tilings]
        self._groups = [group for groups in grouped for group in groups]
        sizes = [len(group.moved.tiles) for group in self._groups]
        family = np.repeat([number for number, groups in enumerate(grouped) for _ in groups], sizes)
        owner, row = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(size) for size in sizes])
        bounds = [self._bounds(group) for group in self._groups]
        bound, slack = (np.concatenate(column) for column in zip(*bounds, strict=True))
        demand = np.concatenate([group.moved.demand(group.depth) for group in self._groups])
        by_bound = np.lexsort((demand, bound))
        fresh = _first_of_equals(np.stack([bound, demand, family, row], axis=1)[by_bound])
        which = by_bound[fresh]
        self._owner, self._row, self._bound, self._demand = owner[which], row[which], bound[which], demand[which]
        parts = Parts(*map(np.concatenate, zip(*(group.parts for group in self._groups), strict=True))).of(which)
        tile = family[which] * len(owner) + self._row
        work = float(self._undivided.cycles)
        self._order = PricingOrder(self._bound, work, slack[which], tile, parts)

    def _groups_of(self, tilings: _Tilings) -> Iterator[_Group]:
        """The tilings under every loop order and buffering depth."""
        portion, split_axis, tiles = tilings
        extents = np.asarray(tiles, dtype=np.int64).reshape(len(tiles), len(self.model.shape))
        given = (split_axis,) if portion else self.fixed.split_axis
        parts = parts_of(extents, self.model.steps, self.model.config.slices, given)
        table = tiling_table(self.model, tuple(tiles), portion)
        cuts = table.counts.max(axis=0).tolist()
        for order in [self.fixed.order] if self.fixed.order else candidates.orders(cuts, table.moves()):
            moved = table.traffic(order, self.residency)
            for depth in Depth:
                wanted = self.fixed.buffers in (None, depth.buffers)
                if wanted and (depth is not Depth.MOVING or moved.has_refills()):
                    yield _Group(tilings, order, depth, moved, parts)

    @cached_property
    def _undivided(self) -> SliceCost:
        """The whole output in one task."""
        return self.model.tile_cost(Region.whole(self.model.shape), None, self.residency)

    def _bounds(self, group: _Group) -> tuple[np.ndarray, np.ndarray]:
        """Rank if every tile used the slices as well as the whole output in one task would and were divided between
        them as evenly as its extents let it; cycles of transfers that the slices' work does not cover then."""
        moved, config = group.moved, self.model.config
        whole, steps = self._undivided, moved.tiles
        slices = whole.cycles * group.parts.shares.min(axis=1)
        program = steps * (whole.program_bytes / whole.tasks)
        flow, constants = flow_of(config, moved, self.weights, slices, program, steps, group.depth)
        cycles = flow.after(loaded_early(constants, moved.demand(group.depth), config))
        nbytes = moved.in_bytes + moved.out_bytes + program
        slack = np.maximum(0.0, larger(flow.loads, flow.stores) - flow.work)
        if group.depth is Depth.NONE:
            slack = np.zeros(len(steps))
        return rank_of(cycles, steps, nbytes / config.dma_bytes_per_cycle), slack

    def _search(self, available: int) -> Choice | None:
        """Price candidates roughly in the order of what is expected of them, then the best of them exactly."""
        rough: list[tuple[tuple[float, float], int, NodeDecision]] = []
        best, fitting = math.inf, 0
        waiting = np.flatnonzero(self._demand <= available)
        indices = waiting.tolist()
        while len(waiting) and fitting < _PRICED[self._effort]:
            position = int(np.argmin(self._order.expected[waiting]))
            index = int(waiting[position])
            waiting = np.delete(waiting, position)
            priced = [choice for choice in self._roughly(index) if choice.cost.demand <= available]
            rough += [(choice.cost.rank, index, choice.decision) for choice in priced]
            best = min([best, *(choice.cost.rank[0] for choice in priced)])
            fitting += bool(priced)
            waiting = waiting[self._order.least[waiting] <= best]
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
            depth = self._depth(index)
            found = [self._priced(option, moved, depth, exact=False) for option in options]
            self._rough[index] = found
            work = {choice.decision.split_axis: choice.cost.slices for choice in found}
            self._order.learn(index, work, {axis: self._if_all_were_full(decision, axis) for axis in work})
        return self._rough[index]

    def _if_all_were_full(self, decision: NodeDecision, axis: int | None) -> float:
        """Busy cycles of the slices when no tile of a decision is a remainder."""
        full, _ = tile_kinds(self.model.shape, decision.tile)[0]
        cost = self.model.slices.rough_cost(full, axis, self.residency, decision.portion)
        return cost.cycles * math.prod(self.model.shape) / full.size

    def _exactly(self, index: int, decision: NodeDecision) -> Choice:
        key = (decision, self._depth(index))
        if key not in self._exact:
            self._exact[key] = self._priced(decision, self._candidate(index)[1], key[1], exact=True)
        return self._exact[key]

    def _priced(self, decision: NodeDecision, moved: Traffic, depth: Depth, *, exact: bool) -> Choice:
        cost = estimate(self.model, decision, self.residency, moved, self.weights, depth, exact=exact)
        return Choice(decision, cost)

    def _depth(self, index: int) -> Depth:
        return self._groups[self._owner[index]].depth

    def _candidate(self, index: int) -> tuple[NodeDecision, Traffic]:
        """A candidate's decision, its slice split still open unless in portions, and its data movement."""
        return self._groups[self._owner[index]].candidate(int(self._row[index]))

    def _split_axes(self, decision: NodeDecision) -> list[int | None]:
        if decision.portion:
            return [decision.split_axis]
        if self.fixed.split_axis is not None:
            return [self.fixed.split_axis[0]]
        axes = candidates.split_axes(decision.tile, self.model.steps, self.model.config.slices)
        return [*axes, None] if axes != [None] and self._programs_outweigh(decision) else axes

    def _programs_outweigh(self, decision: NodeDecision) -> bool:
        """Whether loading the further slices' programs may take longer than what they save."""
        config = self.model.config
        whole = self.model.tile_cost(Region.whole(self.model.shape), None, self.residency)
        steps = math.prod(tile_counts(self.model.shape, decision.tile))
        return steps * config.slices * whole.program_bytes / config.dma_bytes_per_cycle > whole.cycles


def _first_of_equals(rows: np.ndarray) -> np.ndarray:
    """Indices of the first of every run of equal neighbouring rows: loop orders that change nothing."""
    if len(rows) < 2:
        return np.arange(len(rows))
    return np.concatenate([[0], 1 + np.flatnonzero(np.any(rows[1:] != rows[:-1], axis=1))])
