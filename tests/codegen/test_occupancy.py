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
