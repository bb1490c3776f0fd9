"""Several candidates: what is compiled is never slower than the same search without fused groups, or for the chain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

import torq_byoc
from tests.codegen.infra import chain, convolution
from tests.schedules.cases import per_channel
from tests.schedules.models import run_exact
from torq_byoc.compilation import candidates, rivals
from torq_byoc.compilation.candidates import Candidate
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.options import Options
from torq_byoc.compilation.programs import compile_graph
from torq_byoc.compilation.rivals import fastest_candidate
from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.plan import Scheduler, schedule
from torq_byoc.schedules.record import DecisionRecord, NodeOverride
from torq_byoc.schedules.unit_plan import Plan

UNFUSED = DecisionRecord(groups=())


def _cycles(graph: OpGraph, options: Options) -> int:
    return fastest_candidate(graph, options, StageClock()).cycles


@pytest.mark.parametrize(("layers", "channels", "extent", "kib"), [(2, 8, 24, 512), (3, 16, 40, 64), (4, 8, 12, 64)])
def test_fusing_never_loses_to_not_fusing(layers: int, channels: int, extent: int, kib: int) -> None:
    graph = chain(layers, channels, extent)
    options = Options(config=replace(NpuConfig(), lram_bytes=kib << 10))
    assert _cycles(graph, options) <= _cycles(graph, replace(options, decisions=UNFUSED))


def test_what_was_chosen_comes_back_from_its_record() -> None:
    graph = chain(3, 16, 40)
    options = Options(config=replace(NpuConfig(), lram_bytes=64 << 10))
    chosen = fastest_candidate(graph, options, StageClock())
    again = fastest_candidate(graph, replace(options, decisions=chosen.schedule.record), StageClock())
    assert again.schedule.record == chosen.schedule.record
    assert again.generated.program.to_sections() == chosen.generated.program.to_sections()


def _narrow(layers: int = 3) -> OpGraph:
    """Layers so small that loading the programs of four slices takes longer than what four slices save."""
    rng = np.random.default_rng(layers)
    builder = GraphBuilder("narrow")
    x = builder.input("x", (1, 64, 4, 4), DType.INT8)
    for index in range(layers):
        x = convolution(builder, rng, x, 64, 3, 1, 1, f"conv{index}")
    builder.output(x)
    return builder.finish()


def test_more_slices_never_lose_to_fewer() -> None:
    graph = _narrow()
    by_slices = {n: _cycles(graph, Options(config=replace(NpuConfig(), slices=n))) for n in (1, 2, 4)}
    assert by_slices[4] <= by_slices[2] <= by_slices[1]


def test_a_record_says_how_many_slices_a_node_may_use() -> None:
    """Two of four slices: the program that two slices get, whatever else the machine has."""
    graph, four = _narrow(), replace(NpuConfig(), slices=4)
    decisions = DecisionRecord(slices={node.name: 2 for node in graph.nodes})
    limited = fastest_candidate(graph, Options(config=four, decisions=decisions), StageClock())
    assert max(len(tile.parts) for node in limited.schedule.nodes for tile in node.tiles) <= 2
    again = fastest_candidate(graph, Options(config=four, decisions=limited.schedule.record), StageClock())
    assert again.generated.program.to_sections() == limited.generated.program.to_sections()
    assert limited.cycles == fastest_candidate(graph, Options(), StageClock()).cycles


@pytest.mark.parametrize(
    ("machine", "allowed", "size", "channels", "tile"),
    [
        (2, 1, 10, 24, 16),
        (2, 1, 9, 28, 16),
        (4, 3, 14, 64, 8),
        (4, 3, 10, 56, 12),
        (4, 2, 14, 24, 4),
        (4, 1, 14, 80, 32),
    ],
)
def test_weights_are_packed_for_the_slices_that_a_node_may_use(
    machine: int, allowed: int, size: int, channels: int, tile: int
) -> None:
    """Fewer slices suit other blocks of output channels; tiles are cut between them."""
    builder = GraphBuilder("plane")
    x = builder.input("x", (1, 8, size, size), DType.INT8)
    builder.output(convolution(builder, np.random.default_rng(size), x, channels, 1, 1, 0, "conv"))
    graph, config = builder.finish(), replace(NpuConfig(), slices=machine)
    (node,) = graph.nodes
    record = DecisionRecord({node.name: NodeOverride(tile=(1, tile, size, size))}, slices={node.name: allowed})
    run_exact(graph, schedule(graph, config, overrides=record), config)


@pytest.mark.parametrize(("slices", "why"), [({"conv0": 3}, "outside 1..2"), ({"other": 1}, "no such node")])
def test_slices_that_do_not_suit_are_refused(slices: dict[str, int], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        schedule(_narrow(), NpuConfig(), overrides=DecisionRecord(slices=slices))


@pytest.mark.parametrize("kib", [96, 192])
def test_at_more_effort_more_memory_never_loses_to_the_plan_for_half_of_it(kib: int) -> None:
    graph = chain(3, 16, 40)
    options = Options(config=replace(NpuConfig(), lram_bytes=kib << 10), effort=2)
    half = replace(NpuConfig(), lram_bytes=kib << 9)
    plan = Scheduler(graph, half, 2)
    there = candidates.generate(graph, plan.schedule(plan.best()), options.config)
    assert _cycles(graph, options) <= simulate_timeline(there.program).total_cycles


@pytest.mark.parametrize("effort", [2, 3])
def test_the_plans_for_less_memory_are_safe_where_kernels_depend_on_it(effort: int) -> None:
    """A kernel's blocks depend on the machine's LRAM, so the plan for a part of it must be made on that machine."""
    data = files("torq_byoc") / "data"
    calibration = dict(np.load(str(data / "digits_calibration.npz")))
    compiled = torq_byoc.compile(str(data / "digits.onnx"), calibration=calibration, effort=effort)
    default = torq_byoc.compile(str(data / "digits.onnx"), calibration=calibration)
    cycles = [simulate_timeline(model.partitions[0].program).total_cycles for model in (compiled, default)]
    assert cycles[0] <= cycles[1]


def test_the_observer_sees_one_candidate_only() -> None:
    seen: list[str] = []
    options = Options(config=NpuConfig(), observe=lambda level, text: seen.append(level))
    compile_graph("chain", chain(2, 8, 24), options)
    assert len(seen) == len(set(seen)) > 3


def _plan_for_all_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for ladder in ("LADDER", "FINE_LADDER"):
        monkeypatch.setattr(rivals, ladder, ())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts searches that are begun, plans whose tiles are made, and programs that are generated."""
    counts: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def counted_call(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **named)

        return counted_call

    monkeypatch.setattr(Scheduler, "__init__", counting("searches", Scheduler.__init__))
    monkeypatch.setattr(Scheduler, "schedule", counting("tiled", Scheduler.schedule))
    monkeypatch.setattr(candidates, "generate", counting("generated", candidates.generate))
    monkeypatch.setattr(rivals, "UNEVEN", 0)  # one rival at a time
    _plan_for_all_of_the_memory(monkeypatch)
    return counts


def test_the_rival_costs_no_second_search(counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan is what the search began with; where that is too slow to win, nothing is made of it."""
    monkeypatch.setattr(rivals, "PLAUSIBLE", 0.5)
    chosen = fastest_candidate(chain(2, 8, 24), Options(config=NpuConfig()), StageClock())
    assert chosen.schedule.groups and counted == {"searches": 1, "tiled": 1, "generated": 1}


def test_a_rival_that_wins_is_what_the_observer_sees_last(
    counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is laid out once, observed or not."""
    monkeypatch.setattr(Candidate, "cycles", property(lambda self: 1000 if self.schedule.groups else 999))
    monkeypatch.setattr(rivals, "PLAUSIBLE", float("inf"))
    seen: dict[str, str] = {}
    options = Options(config=NpuConfig(), observe=seen.__setitem__)
    graph = chain(2, 8, 24)
    partition = compile_graph("chain", graph, options)
    record = DecisionRecord.loads(partition.facts.decisions)
    assert not record.groups and counted == {"searches": 1, "tiled": 2, "generated": 2}
    alone: dict[str, str] = {}
    unfused = replace(options, decisions=UNFUSED, observe=alone.__setitem__)
    assert partition == compile_graph("chain", graph, unfused)
    assert seen == alone


def _with_head(layers: int, channels: int, extent: int, classes: int) -> OpGraph:
    """Convolutions, then a layer whose weights take longer to load than everything before takes to compute."""
    rng = np.random.default_rng(layers)
    builder = GraphBuilder("head")
    x = builder.input("x", (1, channels, extent, extent), DType.INT8)
    for index in range(layers):
        x = convolution(builder, rng, x, channels, 3, 1, 1, f"conv{index}")
    values = channels * extent * extent
    flat = builder.emit("reshape", [x], (1, values), DType.INT8, hint="flat")
    weights = builder.constant(rng.integers(-127, 128, (values, classes)).astype(np.int8), "weights")
    rescale = per_channel(classes, axis=-1)
    builder.output(builder.emit("matmul", [flat, weights], (1, classes), DType.INT8, rescale=rescale, hint="fc"))
    return builder.finish()


def _chained(scheduler: Scheduler) -> Plan:
    return scheduler.best_chain(3)


def _planned(graph: OpGraph, planned: Callable[[Scheduler], Plan]) -> tuple[Plan, int]:
    """A plan, and its simulated cycles."""
    scheduler = Scheduler(graph, NpuConfig())
    plan = planned(scheduler)
    return plan, candidates.generate(graph, scheduler.schedule(plan), NpuConfig()).timeline.total_cycles


def test_the_fastest_chain_wins_where_the_sum_of_prices_misleads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fusing the head with the layer before it saves what no price of either shows: its weights are loaded beside the
    layers before."""
    _plan_for_all_of_the_memory(monkeypatch)
    graph = _with_head(3, 24, 6, 384)
    (by_price, slower), (chain, faster) = (_planned(graph, p) for p in (Scheduler.best, _chained))
    assert chain.groups != by_price.groups and faster < slower
    chosen = fastest_candidate(graph, Options(), StageClock())
    assert chosen.cycles == faster
    again = fastest_candidate(graph, Options(decisions=chosen.schedule.record), StageClock())
    assert again.generated.program.to_sections() == chosen.generated.program.to_sections()


def test_the_fastest_chain_loses_harmlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "UNEVEN", 0)
    _plan_for_all_of_the_memory(monkeypatch)
    graph = _with_head(2, 24, 6, 320)
    (_, faster), (chain, slower) = (_planned(graph, p) for p in (Scheduler.best, _chained))
    assert chain.expected < _planned(graph, Scheduler.best)[0].expected and slower > faster
    assert _cycles(graph, Options()) == faster


def test_no_other_chain_is_looked_for_in_large_programs(counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _with_head(3, 24, 6, 384)
    fastest_candidate(graph, Options(), StageClock())
    assert counted == {"searches": 1, "tiled": 3, "generated": 3}
    counted.clear()
    monkeypatch.setattr(rivals, "LARGE", 0)
    monkeypatch.setattr(Scheduler, "best_chain", None)
    assert _cycles(graph, Options()) == _planned(graph, Scheduler.best)[1]
    assert counted["generated"] == 2 + 1  # the last one is ``_planned``'s


@pytest.mark.parametrize(("promising", "programs"), [(0.95, 2), (1.0, 3)])
def test_in_larger_programs_a_chain_must_promise_more(
    counted: Counter[str], monkeypatch: pytest.MonkeyPatch, promising: float, programs: int
) -> None:
    """The chain of this graph is expected to take 97 % of the first candidate's cycles."""
    monkeypatch.setattr(rivals, "SMALL", 0)
    monkeypatch.setattr(rivals, "PROMISING", promising)
    fastest_candidate(_with_head(3, 24, 6, 384), Options(), StageClock())
    assert counted["generated"] == programs


def test_plans_for_less_memory_win_in_a_small_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last layer's weights take most of the time: in less LRAM its last tile, which nothing hides, is smaller."""
    graph = _with_head(2, 16, 4, 320)
    fastest = _cycles(graph, Options())
    _plan_for_all_of_the_memory(monkeypatch)
    assert fastest < 0.98 * _cycles(graph, Options())


@pytest.mark.parametrize(
    ("expected", "tried"), [([9.0, 1.0, 9.0, 1.0], 4), ([1.0, 9.0, 9.0, 1.0], 3), ([1.0, None, 1.0, 1.0], 2)]
)
def test_smaller_sizes_are_tried_until_two_in_a_row_promise_too_little(
    monkeypatch: pytest.MonkeyPatch, expected: list[float | None], tried: int
) -> None:
    """Or one is too small for a plan at all."""
    search = candidates.CandidateSearch(chain(2, 8, 24), Options(), StageClock())
    chosen = search.candidate(Scheduler.best)
    assert chosen is not None
    asked: list[float] = []

    def answer(narrowed: candidates.CandidateSearch, plan: object) -> float:
        factor = expected[len(asked)]
        asked.append(narrowed.share)
        if factor is None:
            raise LramOverflowError("too large", where="here", why="it is", remedy="none")
        return factor * chosen.schedule.expected

    monkeypatch.setattr(candidates.CandidateSearch, "expected", answer)
    sizes = [kib << 10 for kib in (448, 384, 320, 256)]
    assert rivals._down(search, chosen, Scheduler.best, sizes) is chosen
    assert len(asked) == tried and asked == sorted(asked, reverse=True)


@pytest.mark.parametrize(("effort", "searches"), [(1, 1), (2, 1 + 2 + 1)])
def test_elsewhere_they_are_tried_with_more_effort(
    counted: Counter[str], monkeypatch: pytest.MonkeyPatch, effort: int, searches: int
) -> None:
    monkeypatch.setattr(rivals, "SMALL", 0)
    monkeypatch.setattr(rivals, "LADDER", (256 << 10, 128 << 10))
    monkeypatch.setattr(rivals, "HELD_UP", math.inf)
    fastest_candidate(chain(2, 32, 24), Options(effort=effort), StageClock())
    assert counted["searches"] == searches


def test_equal_plans_have_one_program(counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a plan that was laid out nor one that could not be is laid out again, whichever way it was found."""
    graph = chain(1, 8, 24)
    fastest_candidate(graph, Options(), StageClock())
    assert counted == {"searches": 1, "tiled": 1, "generated": 1}
    counted.clear()

    def overflowing(*_: Any, **__: Any) -> Any:
        counted["generated"] += 1
        raise LramOverflowError("too large", where="here", why="it is", remedy="none")

    monkeypatch.setattr(candidates, "generate", overflowing)
    with pytest.raises(LramOverflowError, match="too large"):
        fastest_candidate(graph, Options(), StageClock())
    assert counted["generated"] == counted["tiled"] < counted["searches"] == len(candidates.BUDGETS) + 1


@pytest.mark.parametrize("effort", [2, 3])
def test_more_effort_never_loses_to_the_usual_one(effort: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the more thorough search is misled."""
    graph, best = chain(3, 8, 64), Scheduler.best
    usual = Options(config=replace(NpuConfig(), lram_bytes=64 << 10))
    thorough = replace(usual, effort=effort)
    assert _cycles(graph, thorough) <= _cycles(graph, usual)

    def misled(scheduler: Scheduler) -> Plan:
        return best(scheduler) if scheduler.effort == 1 else scheduler.without_groups()

    monkeypatch.setattr(Scheduler, "best", misled)
    monkeypatch.setattr(rivals, "LARGE", 0)
    assert _cycles(graph, usual) < _cycles(graph, replace(thorough, decisions=UNFUSED))
    assert _cycles(graph, thorough) == _cycles(graph, usual)


@pytest.mark.parametrize(("tiles", "fits", "grouped"), [(1, True, True), (1, False, False), (10_000, True, False)])
def test_large_programs_take_the_plan_for_less_memory_where_it_promises_more(
    tiles: int, fits: bool, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless that has no layout: here the usual plan is misled to do without groups."""
    best, candidate = Scheduler.best, candidates.CandidateSearch.candidate

    def misled(scheduler: Scheduler) -> Plan:
        return scheduler.without_groups() if scheduler.capacity == scheduler.config.lram_usable else best(scheduler)

    def laid_out(search: candidates.CandidateSearch, plan: Callable[[Scheduler], Plan]) -> Candidate | None:
        if search.share < 1 and not fits:
            raise LramOverflowError("too large", where="here", why="it is", remedy="none")
        return candidate(search, plan)

    monkeypatch.setattr(Scheduler, "best", misled)
    monkeypatch.setattr(candidates.CandidateSearch, "candidate", laid_out)
    monkeypatch.setattr(rivals, "MANY_TILES", tiles)
    small = Options(config=replace(NpuConfig(), lram_bytes=64 << 10))
    preferred = rivals._preferred(candidates.CandidateSearch(chain(3, 8, 64), small, StageClock()))
    assert bool(preferred.schedule.groups) == grouped


@pytest.mark.parametrize(("channels", "extent", "gain"), [(32, 56, 0.92), (48, 40, 0.91)])
def test_a_program_that_waits_for_room_is_planned_with_less(
    channels: int, extent: int, gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays in LRAM holds up the loads of what comes next, which no estimate sees."""
    _plan_for_all_of_the_memory(monkeypatch)
    graph = chain(6, channels, extent)
    crowded = Options(config=replace(NpuConfig(), lram_bytes=32 << 10))
    fastest = _cycles(graph, crowded)
    monkeypatch.setattr(rivals, "HELD_UP", 2.0)
    assert fastest < gain * _cycles(graph, crowded)
