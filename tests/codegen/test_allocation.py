"""Allocation: no two live buffers overlap, everything fits, and small instances are packed as well as can be."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torq_byoc.codegen.allocation import Allocation, Request, allocate, max_live, pack
from torq_byoc.codegen.allocation.independent import taken_apart
from torq_byoc.codegen.allocation.sections import NEVER, Sections
from torq_byoc.codegen.allocation.skyline import Guide, SkylineSearch

requests = st.lists(
    st.tuples(st.integers(1, 200), st.integers(0, 20), st.integers(0, 6)).map(
        lambda t: Request(t[0], t[1], t[1] + t[2])
    ),
    min_size=1,
    max_size=24,
)
aligns = st.sampled_from([1, 8, 64])
few = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 4)).map(lambda t: Request(t[0], t[1], t[1] + t[2])),
    min_size=1,
    max_size=6,
)


def assert_sound(items: Sequence[Request], allocation: Allocation, align: int) -> None:
    """Aligned, below the height that is claimed, and apart wherever two are alive together."""
    placed = list(zip(items, allocation.offsets, strict=True))
    for index, (a, low) in enumerate(placed):
        assert low >= 0 and low % align == 0 and low + a.size <= allocation.height
        for b, other in placed[index + 1 :]:
            if a.start <= b.end and b.start <= a.end:
                assert low + a.size <= other or other + b.size <= low


def lowest_height(items: Sequence[Request]) -> int:
    """The optimum, by brute force: every order, each buffer on the highest of those already there beside it.

    Any allocation can be pushed down until every buffer rests on the ground or on another one; placed by
    ascending offset that is one of these.
    """
    best = sum(item.size for item in items)
    for order in itertools.permutations(items):
        tops: list[tuple[Request, int]] = []
        for item in order:
            beside = (top for other, top in tops if item.start <= other.end and other.start <= item.end)
            tops.append((item, max(beside, default=0) + item.size))
        best = min(best, max(top for _, top in tops))
    return best


@settings(max_examples=150, deadline=None)
@given(requests, aligns)
def test_allocations_are_sound(items: list[Request], align: int) -> None:
    capacity = sum(-(-r.size // align) * align for r in items)
    allocation = allocate(items, capacity, align)
    assert allocation is not None and allocation.height <= capacity
    assert_sound(items, allocation, align)


@settings(max_examples=100, deadline=None)
@given(requests, aligns)
def test_packed_allocations_are_sound_and_reach_their_height(items: list[Request], align: int) -> None:
    packed = pack(items, align)
    assert_sound(items, packed, align)
    rounded = [Request(-(-r.size // align) * align, r.start, r.end) for r in items]
    assert packed.height == max(low + r.size for low, r in zip(packed.offsets, rounded, strict=True))
    assert packed.height >= max_live(rounded)


@settings(max_examples=60, deadline=None)
@given(few)
def test_small_instances_are_packed_optimally(items: list[Request]) -> None:
    optimum = lowest_height(items)
    assert pack(items, 1).height == optimum
    assert allocate(items, optimum, 1) is not None
    assert allocate(items, optimum - 1, 1) is None


@settings(max_examples=60, deadline=None)
@given(few)
def test_the_search_finds_small_optima_without_first_fit(items: list[Request]) -> None:
    optimum = lowest_height(items)
    outcome = SkylineSearch(Sections(items), optimum, Guide(64)).run(1 << 40)
    assert outcome.offsets is not None
    assert_sound(items, Allocation(outcome.offsets, optimum), 1)


def test_demand_above_capacity_is_refused() -> None:
    assert allocate([Request(60, 0, 3), Request(60, 2, 5)], 100, 1) is None


def test_room_above_an_unaligned_capacity_is_not_used() -> None:
    assert allocate([Request(64, 0, 0), Request(64, 0, 0)], 127, 64) is None
    assert allocate([Request(1, 0, 0), Request(1, 0, 0)], 128, 64) is not None


def test_disjoint_lifetimes_share_memory() -> None:
    items = [Request(100, 0, 1), Request(100, 2, 3), Request(100, 4, 5)]
    allocation = allocate(items, 100, 1)
    assert allocation is not None
    assert allocation.offsets == (0, 0, 0) == pack(items, 1).offsets


def test_nothing_needs_no_memory() -> None:
    assert allocate([], 0, 64) == Allocation((), 0) == pack([], 64)


def test_max_live_counts_both_ends_of_a_lifetime() -> None:
    assert max_live([Request(10, 0, 2), Request(20, 2, 4), Request(5, 3, 3)]) == 30


def test_buffers_that_live_throughout_lie_at_the_bottom_and_the_rest_falls_apart() -> None:
    items = [Request(5, 0, 9), Request(3, 0, 4), Request(4, 5, 9), Request(2, 6, 7), Request(2, 5, 6)]
    piles, parts = taken_apart(items)
    assert {(pile.base, pile.members) for pile in piles} == {(0, (0,)), (5, (1,)), (5, (2,))}
    assert [(part.base, sorted(part.members)) for part in parts] == [(9, [3, 4])]


def test_sections_are_the_slots_that_nothing_could_be_added_to() -> None:
    sections = Sections([Request(1, 0, 10), Request(2, 3, 7), Request(4, 5, 9), Request(8, 12, 30)])
    assert sections.count == 2
    assert sections.demand.tolist() == [7, 8]
    assert list(zip(sections.first.tolist(), sections.last.tolist(), strict=True)) == [(0, 1), (0, 1), (0, 1), (1, 2)]


@pytest.mark.parametrize("seed", range(4))
def test_range_questions_equal_brute_force(seed: int) -> None:
    generator = np.random.default_rng(seed)
    starts, lengths = generator.integers(0, 40, 30), generator.integers(0, 20, 30)
    sections = Sections([Request(1, int(s), int(s + n)) for s, n in zip(starts, lengths, strict=True)])
    floors = generator.integers(0, 99, (3, sections.count)).astype(np.int32)
    rests = generator.integers(0, 99, (3, 30)).astype(np.int32)
    for row in range(3):
        highest = [floors[row, a:b].max() for a, b in zip(sections.first, sections.last, strict=True)]
        assert sections.highest(floors)[row].tolist() == highest
        lowest = [min(rests[row][alive], default=NEVER) for alive in sections.alive]
        assert sections.lowest(rests)[row].tolist() == lowest


def test_work_is_bounded_and_counted() -> None:
    generator = np.random.default_rng(3)
    items = [Request(int(s), int(t), int(t + n)) for s, t, n in generator.integers(1, 60, (120, 3))]
    search = SkylineSearch(Sections(items), max_live(items), Guide(8))
    stopped = search.run(1000)
    assert stopped.offsets is None and stopped.work > 1000
    assert search.run(1 << 40).work > stopped.work


def test_more_effort_is_never_worse() -> None:
    generator = np.random.default_rng(8)
    items = [Request(int(s), int(t), int(t + n)) for s, t, n in generator.integers(1, 40, (60, 3))]
    heights = [pack(items, 1, effort).height for effort in (0, 1, 2)]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] <= 1.02 * max_live(items)


def test_the_answer_does_not_change_between_runs() -> None:
    generator = np.random.default_rng(5)
    items = [Request(int(s), int(t), int(t + n)) for s, t, n in generator.integers(1, 30, (50, 3))]
    assert pack(items, 8) == pack(items, 8)
