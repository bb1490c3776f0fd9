"""Rooms between occupied cells, against a search cell by cell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torq_byoc.codegen.occupancy import Occupancy, highest, lowest

CELLS = 45


@given(st.sets(st.integers(0, CELLS - 1)), st.integers(1, CELLS))
def test_rooms_are_those_found_cell_by_cell(occupied: set[int], wanted: int) -> None:
    occupancy = Occupancy(1, CELLS)
    for cell in occupied:
        occupancy.take(0, 0, cell, 1)
    free = [cell not in occupied for cell in range(CELLS)]
    starts = [at for at in range(CELLS - wanted + 1) if all(free[at : at + wanted])]
    room = occupancy.room(occupancy.taken(0), wanted)
    assert room == sum(1 << at for at in starts)
    if starts:
        assert (lowest(room), highest(room)) == (starts[0], starts[-1])
    runs = "".join(".#"[cell] for cell in free).split(".")
    assert occupancy.longest_room(occupancy.taken(0)) == max(map(len, runs))


@given(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=9), st.integers(1, 8), st.data())
def test_the_earliest_slot_is_the_one_found_slot_by_slot(
    busy: list[set[int]], wanted: int, data: st.DataObject
) -> None:
    occupancy = Occupancy(len(busy), 8)
    for slot, cells in enumerate(busy):
        for cell in cells:
            occupancy.take(slot, slot, cell, 1)
    first = data.draw(st.integers(0, len(busy) - 1))
    last, floor = data.draw(st.integers(first, len(busy) - 1)), data.draw(st.integers(0, first))

    def fits(slot: int) -> bool:
        taken = set().union(*busy[slot : last + 1])
        return any(taken.isdisjoint(range(at, at + wanted)) for at in range(8 - wanted + 1))

    expected = first if fits(first) else None
    while expected is not None and expected > floor and fits(expected - 1):
        expected -= 1
    found = occupancy.earliest(first, last, floor, wanted)
    assert (None if found is None else found.slot) == expected
    if found is not None:
        taken = set().union(*busy[found.slot : last + 1])
        positions = [at for at in range(8 - wanted + 1) if taken.isdisjoint(range(at, at + wanted))]
        assert found.positions == sum(1 << at for at in positions)
