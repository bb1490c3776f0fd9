"""Strategies on a made-up space whose best point is known, and how they are found by name."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from torq_byoc.errors import CommandLineError, EnvironmentProblem
from torq_byoc.explore.tuning.space import Point, Space
from torq_byoc.explore.tuning.strategies import STRATEGIES, load_strategy
from torq_byoc.explore.tuning.strategy import Strategy

GAINS = (0, 0, 40, 0, -30, 0, 25, 0, 0, 60, -80, 0)
"""Cycles that option 1 of every knob saves; option 2 saves half of that, option 3 does not fit."""
ORIGIN_CYCLES = 1000


@dataclass(frozen=True)
class Options:
    """Stands in for a knob."""

    options: int = 4


class Hills:
    """Stands in for a space: independent knobs, a third of which matter."""

    knobs = (Options(),) * len(GAINS)
    weights = (1.0,) * len(GAINS)
    origin = (0,) * len(GAINS)


def cycles_of(point: tuple[int, ...]) -> int | None:
    """What a point is worth; None when it does not fit."""
    if 3 in point:
        return None
    return ORIGIN_CYCLES - sum(gain // option for gain, option in zip(GAINS, point, strict=True) if option)


def searched(name: str, seed: int, trials: int = 80) -> list[tuple[tuple[int, ...], int | None]]:
    """Proposals of a strategy and their worth."""
    strategy = load_strategy(name)(Hills(), ORIGIN_CYCLES, seed)
    seen = []
    for _ in range(trials):
        point = strategy.propose()
        seen.append((point, cycles_of(point)))
        strategy.observe(*seen[-1])
    return seen


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gets_better_than_the_origin(name):
    seen = searched(name, seed=1)
    for point, _ in seen:
        assert len(point) == len(GAINS) and all(0 <= option < 4 for option in point)
    best = min(cycles for _, cycles in seen if cycles is not None)
    assert best <= ORIGIN_CYCLES - 60, "the single best change was not found"


@pytest.mark.parametrize("name", ["evolutionary", "bayesian"])
def test_learning_strategies_combine_what_helps(name):
    best = min(cycles for _, cycles in searched(name, seed=2, trials=120) if cycles is not None)
    assert best <= ORIGIN_CYCLES - 100, "two of the three useful changes at least"


@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_seeds_give_equal_searches(name):
    assert searched(name, seed=3, trials=40) == searched(name, seed=3, trials=40)
    assert searched(name, seed=3, trials=40) != searched(name, seed=4, trials=40)


def test_an_unknown_strategy_is_refused_with_the_nearest():
    with pytest.raises(CommandLineError, match="bayesian"):
        load_strategy("bayes")


def test_a_missing_library_is_named_with_its_remedy(monkeypatch):
    monkeypatch.delitem(sys.modules, "torq_byoc.explore.tuning.strategies.bayesian", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'torq-byoc\[tune\]'"):
        load_strategy("bayesian")
    assert load_strategy("random") is not None


def test_the_document_shows_a_strategy_that_works(monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "tuning.md").read_text()
    (example,) = re.findall(r"```python\n(class Search.*?)```", text, flags=re.DOTALL)
    module = ModuleType("torq_byoc.explore.tuning.strategies.in_turn")
    module.__dict__.update({"itertools": itertools, "Strategy": Strategy, "Space": Space, "Point": Point})
    exec(compile("from __future__ import annotations\n" + example, "docs/tuning.md", "exec"), module.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(STRATEGIES, "in turn", type(STRATEGIES["random"])("in_turn"))
    points = [point for point, _ in searched("in turn", seed=0, trials=3 * len(GAINS))]
    assert len(set(points)) == 3 * len(GAINS) and all(sum(map(bool, point)) == 1 for point in points)
