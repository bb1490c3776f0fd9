"""Plans as chains, against walks over all steps, by hand, against every division into groups, and in the simulator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules.models import flattened, residual, strided
from schedules.pipelines import walk

from torq_byoc.codegen.generate import generate
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.chain import IMPOSSIBLE, Cut, Unit, chained
from torq_byoc.schedules.flow import Flow
from torq_byoc.schedules.fusion import chain_search
from torq_byoc.schedules.fusion.chain_search import Partial, fastest_chain, front
from torq_byoc.schedules.plan import Scheduler
from torq_byoc.schedules.unit_plan import Plan

CYCLES = st.integers(0, 50)
STEPS = st.lists(st.tuples(CYCLES, CYCLES, CYCLES), min_size=1, max_size=5)


def unit(
    *steps: tuple[float, float, float],
    constants: float = 0,
    largest: float = 0,
    shares: tuple[float, ...] = (),
    along: int = -1,
    room: float = math.inf,
    extra: float = 0,
) -> Unit:
    return Unit(Flow.of_steps(steps), constants, largest, shares, along, room, len(steps), extra)


@st.composite
def units(draw: st.DrawFn) -> Unit:
    steps = draw(STEPS)
    constants = draw(st.integers(0, sum(load for load, _, _ in steps)))
    largest, shares = draw(st.integers(0, constants)), draw(st.sampled_from([(), (0.25, 0.5), (1.0, 1.0), (1.0, 0.25)]))
    along = draw(st.integers(-1, 1))
    room, extra = draw(st.integers(0, 120)), draw(st.integers(0, 40))
    return unit(*steps, constants=constants, largest=largest, shares=shares, along=along, room=room, extra=extra)


@given(st.lists(STEPS, min_size=1, max_size=5))
def test_with_room_and_nothing_from_xram_units_are_one_pipeline(parts: list[list[tuple[int, int, int]]]) -> None:
    steps = [step for part in parts for step in part]
    loads, works, stores = zip(*steps, strict=True)
    end = chained(unit(*part) for part in parts)
    assert end.cycles == walk(loads, works, stores)
    assert (end.loads, end.work) == (sum(loads), walk(loads, works, [0] * len(steps)))


def test_loads_lead_the_slices_by_what_there_is_room_for() -> None:
    """300 cycles of loads for the second unit, 70 of them beside the first one, which works until 1010."""
    first, second = unit((10, 1000, 0), room=70), unit((300, 5, 0), constants=60, largest=60)
    assert chained([first, second]).cycles == 1010 - 70 + 300 + 5
    assert chained([unit((10, 1000, 0)), second]).cycles == 1010 + 5


def test_a_transfer_that_has_no_room_as_a_whole_waits() -> None:
    """Of 300 cycles of constants one transfer has 200: the others fit into the 290 beside the first unit, not this."""
    second = unit((300, 5, 0), constants=300, largest=200)
    assert chained([unit((10, 1000, 0), room=290), second]).cycles == 1010 + 200 + 5
    assert chained([unit((10, 1000, 0), room=300), second]).cycles == 1010 + 5


@pytest.mark.parametrize(
    ("shares", "cycles"),
    [
        pytest.param((), 1010 + 40 + 5, id="nothing from XRAM: its store follows the first one's"),
        pytest.param((1.0,), 1010 + 40 + 20 + 5 + 5, id="all of it: 20 of 100 cycles of loads come after the store"),
    ],
)
def test_what_goes_through_xram_is_stored_before_it_is_loaded_and_constants_need_not_wait(
    shares: tuple[float, ...], cycles: int
) -> None:
    second = unit((100, 5, 5), constants=80, largest=80, shares=shares)
    assert chained([unit((10, 1000, 40)), second]).cycles == cycles


def test_a_part_of_a_tensor_is_loaded_when_that_part_is_stored() -> None:
    """Ten equal steps, each stored as it is made, and ten that read a tenth each: only the last waits for all."""
    first = unit(*[(0, 100, 20)] * 10)
    assert chained([first, unit(*[(20, 2, 0)] * 10, shares=(1.0, 0.1))]).cycles == 1020 + 20 + 2
    assert chained([first, unit(*[(20, 2, 0)] * 10, shares=(1.0, 1.0))]).cycles == 1020 + 200 + 2


def test_a_part_that_cuts_another_axis_than_the_stores_waits_for_the_whole_tensor() -> None:
    """Stored by channels, read by rows of all channels: the first rows are there when the last channels are."""
    readers = unit(*[(20, 2, 0)] * 10, shares=(1.0, 0.1))
    assert chained([unit(*[(0, 100, 20)] * 10, along=1), readers]).cycles == 1020 + 20 + 2
    assert chained([unit(*[(0, 100, 20)] * 10, along=0), readers]).cycles == 1020 + 200 + 2


def test_slices_wait_inside_a_unit_without_double_buffering() -> None:
    """Two bands one after the other: the second one's load of 30 cycles does not overlap with the first one's work."""
    bands = Flow.step(30, 100, 0).times(2, overlapping=False)
    behind = Unit(bands, 0, 0, (), -1, math.inf, 2, 0)
    assert chained([unit((0, 1000, 0)), behind]).cycles == 1000 + 100 + 30 + 100


def test_a_unit_that_does_not_fit_makes_a_plan_impossible() -> None:
    assert chained([unit((1, 1, 1)), None]) == IMPOSSIBLE
    assert IMPOSSIBLE.cycles == IMPOSSIBLE.price == math.inf


@given(st.lists(units(), max_size=3), st.lists(units(), max_size=3), st.lists(units(), max_size=3))
def test_whatever_follows_a_beaten_plan_is_no_better_than_after_the_other(
    one: list[Unit], other: list[Unit], rest: list[Unit]
) -> None:
    """What the front relies on."""
    worse, better = chained(one), chained(other)
    both = Cut(
        *(
            its if name == "along" else min(mine, its) if name == "room" else max(mine, its)
            for name, mine, its in ((n, getattr(worse, n), getattr(better, n)) for n in Cut.__struct_fields__)
        )
    )
    assert both.beaten_by(better)
    for more in rest:
        both, better = both.then(more), better.then(more)
        assert both.beaten_by(better)


Segments = Mapping[int, Sequence[tuple[int, Unit]]]


def divisions(nodes: Sequence[Unit], segments: Segments, last: int) -> Iterator[list[tuple[int, int, Unit]]]:
    """Every way to run the nodes up to the last one."""
    if last < 0:
        yield []
        return
    for first, way in [(last, nodes[last]), *segments.get(last, ())]:
        for before in divisions(nodes, segments, first - 1):
            yield [*before, (first, last, way)]


@given(st.data(), st.lists(units(), min_size=1, max_size=5))
def test_of_all_divisions_into_groups_the_cheapest_is_found(data: st.DataObject, nodes: list[Unit]) -> None:
    pairs = list(itertools.combinations(range(len(nodes)), 2))
    segments: dict[int, list[tuple[int, Unit]]] = {}
    for first, last in data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else ():
        segments.setdefault(last, []).append((first, data.draw(units())))
    price = {
        tuple((first, last) for first, last, _ in ways if first < last): chained(way for *_, way in ways).price
        for ways in divisions(nodes, segments, len(nodes) - 1)
    }
    with patch.object(chain_search, "FRONT", len(price)):
        assert price[tuple(fastest_chain(nodes, segments))] == min(price.values())


def test_no_division_fits_where_a_node_fits_neither_alone_nor_in_a_group() -> None:
    step = unit((1, 1, 1))
    assert fastest_chain([step, None], {}) == []
    assert fastest_chain([step, None, step], {1: [(0, step)]}) == [(0, 1)]


def test_of_a_long_front_the_cheapest_remain_and_those_that_are_free_first() -> None:
    cheap = [Partial(Cut(loads=60 + i, work=100 + i, stores=200 - 10 * i)) for i in range(6)]
    unloaded, idle = Partial(Cut(loads=0, work=900)), Partial(Cut(loads=900, work=0))
    beaten = Partial(Cut(loads=950, work=1))
    kept = front([beaten, idle, unloaded, *cheap])
    assert len(kept) == chain_search.FRONT and beaten not in kept
    assert unloaded in kept and idle in kept
    assert min(cheap, key=lambda partial: partial.cut.price) in kept


@pytest.mark.parametrize("make", [residual, lambda: strided(32), flattened, lambda: residual(56, 32, 3)])
@pytest.mark.parametrize("planned", [Scheduler.best, lambda s: s.best_chain(3), Scheduler.without_groups])
def test_a_plan_takes_about_what_its_chain_is_expected_to_take(
    make: Callable[[], OpGraph], planned: Callable[[Scheduler], Plan]
) -> None:
    """Within a twentieth of the simulated cycles."""
    graph = make()
    scheduler = Scheduler(graph, NpuConfig())
    plan = planned(scheduler)
    cycles = generate(graph, scheduler.schedule(plan), NpuConfig()).timeline.total_cycles
    assert plan.expected == pytest.approx(cycles, rel=0.05)
