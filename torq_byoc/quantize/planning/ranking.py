"""The order in which to take moves: at every step the one that lessens the worst part's error most for its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.quantize.planning.moves import LEAST_COST, Move
from torq_byoc.quantize.precision_plan import PrecisionPlan

LEAST_GAIN = 1e-3
"""Share of the worst part's error below which a move is usually not worth its place in a plan."""


@dataclass(frozen=True)
class Step:
    """A move in its place.

    Attributes:
        move: what is done.
        noise: error over signal, as an energy, expected of the worst output part afterwards.
        cost: cycles that the plan costs so far, bytes among them, beyond 8 bits everywhere.
    """

    move: Move
    noise: float
    cost: float


def ranked(moves: Sequence[Move], noise: Sequence[np.ndarray], least_gain: float = LEAST_GAIN) -> list[Step]:
    """All moves worth taking, in order.

    Args:
        moves: what can be done; of those about one cause each takes the place of the one before.
        noise: of every cause, one array of output parts each.
        least_gain: share of the worst part's error below which a move is left out.
    """
    left = np.ones(len(noise))
    paid = np.zeros(len(noise))
    total = np.sum(noise, axis=0)
    steps: list[Step] = []
    while True:
        worst = int(np.argmax(total))
        best, value = None, 0.0
        for move in moves:
            change = _change(move, left[move.source], noise)
            gain = -float(change[worst])
            if gain <= least_gain * total[worst]:
                continue
            cost = max(move.cost - paid[move.source], LEAST_COST if move.cost else 0.0)
            worth = gain / cost if cost else np.inf
            if worth > value or (worth == value == np.inf and best and move.left < best.left):
                best, value = move, worth
        if best is None:
            return steps
        total = total + _change(best, left[best.source], noise)
        left[best.source], paid[best.source] = best.left, max(best.cost, paid[best.source])
        steps.append(Step(best, float(total.max()), float(paid.sum())))


def _change(move: Move, left: float, noise: Sequence[np.ndarray]) -> np.ndarray:
    """What a move adds to the noise of every output part, with so much left of its cause's."""
    change = (move.left - left) * noise[move.source]
    for source, share in move.added:
        change = change + share * noise[source]
    return change


def plan_of(steps: Sequence[Step], plan: PrecisionPlan) -> PrecisionPlan:
    """A plan with some steps taken."""
    for step in steps:
        plan = step.move.applied_to(plan)
    return plan
