"""The search over a graph: never worse than the default, repeatable, within its budget, misfits counted."""

from __future__ import annotations

import time

import numpy as np
import pytest
from explore.tuning.workloads import poor_workload, renamed, small_workload

from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.explore.tuning.space import Point
from torq_byoc.explore.tuning.strategies import STRATEGIES, load_strategy
from torq_byoc.explore.tuning.strategy import Strategy
from torq_byoc.explore.tuning.tuner import Budget, Search, tune
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.record import DecisionRecord, NodeOverride


def tuned(name: str, trials: int, seed: int = 0) -> Search:
    return tune(poor_workload(), load_strategy(name), Budget(trials), seed)


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_improve_a_small_network(name):
    search = tuned(name, trials=25)
    assert search.trials <= 25
    assert search.default.cycles == poor_workload().measure(None).cycles
    assert search.best.cycles < 0.9 * search.default.cycles
    steps = [found.cycles for found in search.improvements]
    assert steps == sorted(steps, reverse=True) and steps[-1] == search.best.cycles
    partition = poor_workload().verified(search.best)
    assert simulate_timeline(partition.program).total_cycles == search.best.cycles


@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_seeds_find_equal_schedules(name):
    first, second = tuned(name, 8, seed=7), tuned(name, 8, seed=7)
    assert first.best.record.dumps() == second.best.record.dumps()
    assert first.improvements == second.improvements


def test_a_tuned_program_computes_what_the_default_one_does():
    workload = poor_workload()
    search = tuned("random", 10)
    data = {"image": np.random.default_rng(1).integers(-128, 128, (1, 3, 14, 14)).astype(np.int8)}
    programs = [workload.verified(found).program for found in (search.default, search.best)]
    first, second = ([*Simulator(program).run(data).values()] for program in programs)
    assert programs[0].to_sections() != programs[1].to_sections()
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


class Stubborn(Strategy):
    """Proposes two points for ever; the tuner must notice that nothing is left."""

    turn = 0

    def propose(self) -> Point:
        self.turn += 1
        return (*self.space.origin[:-1], self.turn % 2)

    def observe(self, point: Point, cycles: int | None) -> None:
        assert cycles is not None


def test_a_search_ends_when_there_is_nothing_new():
    search = tune(small_workload(), Stubborn, Budget(1000), 0)
    assert search.trials < 10


def test_no_time_is_no_search():
    search = tune(small_workload(), load_strategy("random"), Budget(1000, time.monotonic()), 0)
    assert search.trials == 0 and search.best is search.default


@pytest.mark.parametrize("error", [ScheduleError, LramOverflowError])
def test_what_does_not_fit_is_counted(monkeypatch, error):
    workload = small_workload()
    measure, calls = type(workload).measure, []

    def refusing(self, record):
        calls.append(record)
        if len(calls) % 3 == 2:
            raise error("too large")
        return measure(self, record)

    monkeypatch.setattr(type(workload), "measure", refusing)
    search = tune(workload, load_strategy("evolutionary"), Budget(9), 0)
    assert search.trials == 9 and search.infeasible == 3


def test_a_start_that_does_not_apply_is_counted_and_a_good_one_is_kept():
    workload, known = poor_workload(), tuned("random", 10)
    starts = [
        ("nonsense", DecisionRecord({workload.graph.nodes[0].name: NodeOverride(tile=(1, 1))})),
        ("known", known.best.record),
    ]
    search = tune(workload, load_strategy("random"), Budget(2), 0, starts=lambda default: starts)
    assert (search.trials, search.infeasible) == (2, 1)
    assert search.best.cycles == known.best.cycles
    assert search.improvements[0].changes == ("known",)


def test_names_and_weights_do_not_matter():
    search = tuned("evolutionary", 8)
    other = tune(poor_workload(renamed(poor_workload().graph, "other_")), load_strategy("evolutionary"), Budget(8), 0)
    assert (other.default.cycles, other.best.cycles) == (search.default.cycles, search.best.cycles)
