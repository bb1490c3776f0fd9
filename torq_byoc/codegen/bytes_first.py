"""Orders whose loads are issued as early as bytes allow; where everything lies is found afterwards.

``placement`` places one load after the other, in the order of use: a small one that comes early may take the place that
a large one would have needed for long, and what waits for that place holds up all loads behind it.  Here the slots come
first, from the bytes that are alive in every slot, as if memory had no addresses.  Places for those lifetimes are then
sought for all buffers together, or for the loads by how much of the memory they take for how long::

    by order of use                       by bytes
    |  w1 (early)                         |  w1 (early)
    |     | waits for one place: w2       |  w2 (early, another place for w1)

Neither way always finds places; the orders that do are rivals of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.codegen.allocation import Request, allocate
from torq_byoc.codegen.lifetimes import Fetch, Lifetime
from torq_byoc.codegen.load_queue import FillingGaps, Waiting
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.occupancy import highest
from torq_byoc.codegen.placement import MAX_LOOKAHEAD, Early, can_serve
from torq_byoc.codegen.prefetch import OrderedProgram, ordered_program
from torq_byoc.codegen.result_places import Places, ResultPlacer, ResultPlaces, lingering_results, swept_further

SEARCHED_SHARES = (0.99, 0.94)
"""Of the LRAM, the most that loads may fill where offsets are searched for: the first for which that succeeds."""


@dataclass(frozen=True)
class Fit:
    """How loads are placed beside the results.

    Attributes:
        share: of the LRAM, the most that may be alive with loads that are early.
        steps: loads whose first uses lie so many steps apart at most are placed in the order of bytes times slots;
            those of later steps follow.
        most_ops: of a program that is worth the try.
    """

    share: float
    steps: int
    most_ops: int


FITS = (
    Fit(0.95, 1 << 30, 2_000),
    Fit(1.0, 16, 10_000),
    Fit(1.0, 2, 10_000),
    Fit(1.0, 1, 10_000),
    Fit(0.95, 4, 10_000),
)
SEARCH_EFFORT = 1
FITTING_ATTEMPTS = 20
SEARCHED_OPS = 900
"""Of a program whose offsets are searched for: what that takes grows faster than the program."""


@dataclass(frozen=True, eq=False)
class Slots:
    """When loads are issued, given bytes alone.

    Attributes:
        issued: slot of every fetched buffer that is loaded.
        reused: for buffers that need no load, the buffer that holds the same.
        lifetimes: of all buffers.
    """

    issued: Mapping[int, int]
    reused: Mapping[int, int]
    lifetimes: Mapping[int, Lifetime]


def orders_by_bytes(results: ResultPlacer, early: Early) -> Iterator[OrderedProgram]:
    """The orders whose buffers find places, one after the other; possibly none.

    Args:
        results: places the results of the program, and knows what its buffers need.
        early: which loads may be issued before the step that needs them.
    """
    ops = len(results.needs.program.ops)
    found = _searched(results, early) if ops <= SEARCHED_OPS else None
    if found is not None:
        yield found
    for fit in FITS:
        found = _fitted(results, early, fit) if ops <= fit.most_ops else None
        if found is not None:
            yield found


def slots_by_bytes(needs: Needs, results: Places, capacity: int, early: Early) -> Slots:
    """The earliest slot of every load from which on its bytes find room beside all that is alive.

    Args:
        needs: of the program.
        results: results and resident tensors; their lifetimes stand.
        capacity: cells that may be alive at a time; a load that finds no room even so is issued when it is needed.
        early: which loads may be issued before the step that needs them.
    """
    alive = np.zeros(needs.steps, np.int64)
    lifetimes = dict(results.lifetimes)
    for buffer, life in lifetimes.items():
        alive[life.start : life.end + 1] += needs.cells[buffer]
    queue = FillingGaps(needs.program, MAX_LOOKAHEAD)
    issued: dict[int, int] = {}
    reused: dict[int, int] = {}
    holders: dict[object, int] = {}

    def stays(fetch: Fetch, holder: int) -> bool:
        """Let a copy that another node left stay until the fetch is needed, if there is room for it."""
        life, cells = lifetimes[holder], needs.cells[holder]
        if not can_serve(needs, holder, life, fetch):
            return False
        longer = alive[life.end + 1 : fetch.last_use + 1]
        if longer.size and longer.max() + cells > capacity:
            return False
        longer += cells
        lifetimes[holder] = Lifetime(life.start, max(life.end, fetch.last_use))
        return True

    for fetch, ready in needs.fetches:
        buffer, cells = fetch.buffer, needs.cells[fetch.buffer]
        copy = needs.copies.get(buffer)
        holder = holders.get(copy.content) if copy else None
        if holder is not None and stays(fetch, holder):
            reused[buffer] = holder
            continue
        floor = max(fetch.first_use - MAX_LOOKAHEAD, ready, early.floor(fetch), queue.soonest(fetch.first_use))
        crowded = np.flatnonzero(alive[floor : fetch.last_use + 1] + cells > capacity)
        earliest = min(floor + int(crowded[-1]) + 1 if crowded.size else floor, fetch.first_use)
        slot = queue.enter(Waiting(fetch.first_use, fetch.cycles, earliest, ready - 1))
        issued[buffer], lifetimes[buffer] = slot, Lifetime(slot, fetch.last_use)
        alive[slot : fetch.last_use + 1] += cells
        if copy:
            holders[copy.content] = buffer
    return Slots(issued, reused, lifetimes)


def _searched(results: ResultPlacer, early: Early) -> OrderedProgram | None:
    """An order for which a search for all buffers together finds offsets."""
    needs = results.needs
    placed = _placed(results, early, {})
    if placed.failed is not None:
        return None
    for share in SEARCHED_SHARES:
        slots = slots_by_bytes(needs, placed.places, int(share * results.capacity) // needs.cell, early)
        requests = [Request(needs.cells[buffer], life.start, life.end) for buffer, life in slots.lifetimes.items()]
        found = allocate(requests, results.capacity // needs.cell, 1, SEARCH_EFFORT)
        if found is not None:
            offsets = {buffer: needs.cell * at for buffer, at in zip(slots.lifetimes, found.offsets, strict=True)}
            return ordered_program(needs, slots.issued, slots.reused, slots.lifetimes, offsets)
    return None


def _fitted(results: ResultPlacer, early: Early, fit: Fit) -> OrderedProgram | None:
    """An order whose loads are placed beside the results, those first that take the most memory for the longest time.

    A load that finds no place from its slot on is issued later.  One that finds none at all goes before all others in
    the next attempt, where no stored result lingers in the steps that use it.
    """
    needs = results.needs
    capacity = int(fit.share * results.capacity) // needs.cell
    first_uses = {fetch.buffer: fetch.first_use for fetch, _ in needs.fetches}
    swept: Mapping[int, int] = {}
    urgent: dict[int, int] = {}
    for attempt in range(FITTING_ATTEMPTS):
        placed = _placed(results, early, swept)
        if placed.failed is not None:
            return None
        slots = slots_by_bytes(needs, placed.places, capacity, early)
        places = placed.places.copy()
        issued: dict[int, int] = {}

        def rank(buffer: int, lifetimes: Mapping[int, Lifetime] = slots.lifetimes) -> tuple[int, ...]:
            life = lifetimes[buffer]
            area = (life.end - life.start + 1) * needs.cells[buffer]
            return urgent.get(buffer, 0), first_uses[buffer] // fit.steps, -area, buffer

        failed = _place(needs, slots, first_uses, sorted(slots.issued, key=rank), places, issued)
        if failed is None:
            return ordered_program(needs, issued, slots.reused, places.lifetimes, places.offsets)
        urgent[failed] = -1 - attempt
        swept = swept_further(needs, swept, {*range(first_uses[failed], slots.lifetimes[failed].end + 1)})
    return None


def _placed(results: ResultPlacer, early: Early, swept: Mapping[int, int]) -> ResultPlaces:
    """Results where those that take the most for the longest time come first; some linger where tiles overlap."""
    lingering = lingering_results(results.needs, swept) if early.across_tiles else frozenset()
    return results.placed(lingering, largest_first=True)


def _place(
    needs: Needs,
    slots: Slots,
    first_uses: Mapping[int, int],
    loads: Sequence[int],
    places: Places,
    issued: dict[int, int],
) -> int | None:
    """Place loads one after the other; fills ``issued``.  The first one that finds no place, or None."""
    for buffer in loads:
        life, cells = slots.lifetimes[buffer], needs.cells[buffer]
        opening = places.occupancy.earliest(first_uses[buffer], life.end, life.start, cells)
        if opening is None:
            return buffer
        issued[buffer] = opening.slot
        places.take(buffer, Lifetime(opening.slot, life.end), highest(opening.positions), cells)
    return None
