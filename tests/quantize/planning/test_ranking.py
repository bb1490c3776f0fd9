"""The order of moves: free ones first, then the most noise for its cost, each cause's moves one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.quantize.planning.moves import Move
from torq_byoc.quantize.planning.ranking import plan_of, ranked
from torq_byoc.quantize.precision_plan import PrecisionPlan, TensorPrecision

WIDE, OTHER = TensorPrecision(dtype="int16"), TensorPrecision(method="percentile")


def move(source: int, left: float, cost: float, **more: object) -> Move:
    return Move(source, left, cost, {f"t{source}": OTHER if cost == 0 else WIDE}, **more)


def test_free_moves_come_first_and_wide_tensors_by_worth():
    noise = [np.array([4.0]), np.array([3.0]), np.array([0.5])]
    moves = [move(0, 0.0, 100.0), move(1, 0.0, 10.0), move(1, 0.5, 0.0), move(2, 0.0, 1000.0)]
    steps = ranked(moves, noise)
    assert [(step.move.source, step.move.cost) for step in steps] == [(1, 0.0), (1, 10.0), (0, 100.0), (2, 1000.0)]
    assert [step.noise for step in steps] == pytest.approx([6.0, 4.5, 0.5, 0.0])
    assert [step.cost for step in steps] == [0.0, 10.0, 110.0, 1110.0]


def test_the_worst_output_part_decides():
    """The second cause has more noise in sum, but the first one spoils the worst part."""
    noise = [np.array([1.0, 0.0]), np.array([0.0, 0.9])]
    steps = ranked([move(1, 0.0, 1.0), move(0, 0.5, 1.0)], noise)
    assert [step.move.source for step in steps] == [0, 1]


def test_what_brings_more_noise_than_it_takes_is_not_in_it():
    noise = [np.array([1.0]), np.array([1.0])]
    assert ranked([move(0, 0.1, 1.0, added=((1, 2.0),))], noise) == []
    (step,) = ranked([move(0, 0.1, 1.0, added=((1, 0.5),))], noise)
    assert step.noise == pytest.approx(1.6)


def test_a_later_move_takes_the_place_of_an_earlier_one_in_the_plan():
    noise = [np.array([1.0])]
    steps = ranked([move(0, 0.5, 0.0), move(0, 0.0, 3.0), Move(0, 0.0, 2.0, {}, ("conv", "relu"))], noise)
    assert plan_of(steps[:1], PrecisionPlan()).tensors == {"t0": OTHER}
    plan = plan_of(steps, PrecisionPlan())
    assert plan.nodes == {"conv": "bf16", "relu": "bf16"} and plan.tensors == {"t0": OTHER}
