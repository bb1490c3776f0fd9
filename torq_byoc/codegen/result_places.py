"""Places of results and resident tensors, which are there from the step that makes them on, whatever is loaded.

Those that take up most are placed first.  Attempts at loading everything else start from the same places as long as
they agree on which results linger for their transfers and on the order: these are found once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from torq_byoc.codegen.clean_copies import Content
from torq_byoc.codegen.lifetimes import Lifetime
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.occupancy import Occupancy, highest, lowest, span


@dataclass(eq=False)
class Places:
    """Buffers in LRAM.

    Attributes:
        needs: of all buffers.
        occupancy: which cells are taken when.
        lifetimes: slots of every placed buffer.
        offsets: its LRAM offset in bytes.
        holders: for contents that XRAM holds as well, the buffer placed last that holds them.
    """

    needs: Needs
    occupancy: Occupancy
    lifetimes: dict[int, Lifetime]
    offsets: dict[int, int]
    holders: dict[Content, int]

    @classmethod
    def none(cls, needs: Needs, capacity: int) -> Places:
        """An LRAM of so many bytes with nothing in it."""
        return cls(needs, Occupancy(needs.steps, capacity // needs.cell), {}, {}, {})

    def copy(self) -> Places:
        """The same, to be filled further."""
        return replace(
            self,
            occupancy=self.occupancy.copy(),
            lifetimes=dict(self.lifetimes),
            offsets=dict(self.offsets),
            holders=dict(self.holders),
        )

    def take(self, buffer: int, life: Lifetime, position: int, cells: int) -> None:
        """Give a buffer its place: so many free cells from a position on."""
        self.occupancy.take(life.start, life.end, position, cells)
        self.settle(buffer, life, position)

    def settle(self, buffer: int, life: Lifetime, position: int) -> None:
        """Note the place of a buffer: cells that are taken for it already."""
        needs = self.needs
        self.lifetimes[buffer] = life
        self.offsets[buffer] = position * needs.cell
        if buffer in needs.copies:
            self.holders[needs.copies[buffer].content] = buffer


@dataclass(frozen=True, eq=False)
class ResultPlaces:
    """Results in their places; ``failed`` is the lifetime of the first one that found no room, if any."""

    places: Places
    failed: Lifetime | None


class ResultPlacer:
    """Places the results of a program, in the ways that are asked for.

    Args:
        needs: of the program.
        capacity: bytes of LRAM.
    """

    def __init__(self, needs: Needs, capacity: int) -> None:
        self.needs, self.capacity = needs, capacity
        self._known: dict[tuple[bool, bool, frozenset[int]], ResultPlaces] = {}

    def placed(self, lingering: frozenset[int], *, largest_first: bool, by_twins: bool = False) -> ResultPlaces:
        """The places of all results.

        Args:
            lingering: stored results that stay for their transfer where there is room.
            largest_first: place results in the order of bytes times slots, not of slots alone.
            by_twins: results take the places of their twins where these are free.
        """
        key = (largest_first, by_twins, lingering)
        if key not in self._known:
            twins = self.needs.twins.latest if by_twins else {}
            self._known[key] = self._found(lingering, _rank(self.needs, largest_first=largest_first), twins)
        return self._known[key]

    def _found(
        self,
        lingering: frozenset[int],
        rank: Callable[[int], tuple[int, ...]],
        twins: Mapping[int, tuple[int, ...]],
    ) -> ResultPlaces:
        places, lives = Places.none(self.needs, self.capacity), self.needs.fixed
        for buffer in sorted(lives, key=rank):
            life = lives[buffer]
            longer = [Lifetime(life.start, self.needs.lingering[buffer])] if buffer in lingering else []
            like = twins.get(buffer, ())
            if not any(_fits(places, buffer, wanted, like) for wanted in (*longer, life)):
                return ResultPlaces(places, life)
        return ResultPlaces(places, None)


def lingering_results(needs: Needs, swept: Mapping[int, int]) -> frozenset[int]:
    """The stored results that may linger, given how many cells one that lingers in a step may have at most, for the
    steps with such a limit."""
    ends: Mapping[int, int] = needs.lingering
    if not swept:
        return frozenset(ends)
    return frozenset(
        [
            buffer
            for buffer, until in ends.items()
            if all(needs.cells[buffer] <= swept.get(step, needs.cells[buffer]) for step in _times(needs, buffer))
        ]
    )


def swept_further(needs: Needs, swept: Mapping[int, int], steps: Set[int]) -> Mapping[int, int]:
    """Limits with which less lingers in some steps, if anything does: nothing of more than half the cells of the
    largest result that lingers there.

    A small result that has to make room is seldom what was missing, and the next step waits for its store.

    Args:
        needs: of the program.
        swept: the limits so far.
        steps: in which there is too little room.
    """
    lingering = lingering_results(needs, swept)
    sizes = [needs.cells[buffer] for buffer in lingering if not steps.isdisjoint(_times(needs, buffer))]
    if not sizes:
        return swept
    limit = max(sizes) // 2
    return {**swept, **{step: min(limit, swept.get(step, limit)) for step in steps}}


def _times(needs: Needs, buffer: int) -> range:
    """The slots in which a stored result lingers, and the last one in which it is needed."""
    return range(needs.fixed[buffer].end, needs.lingering[buffer] + 1)


def _rank(needs: Needs, *, largest_first: bool) -> Callable[[int], tuple[int, ...]]:
    """The order in which results are placed."""

    def rank(buffer: int) -> tuple[int, ...]:
        life, cells = needs.fixed[buffer], needs.cells[buffer]
        slots = life.end - life.start + 1
        return (-slots * cells, buffer) if largest_first else (-slots, life.start, -cells, buffer)

    return rank


def _fits(places: Places, buffer: int, life: Lifetime, twins: Sequence[int]) -> bool:
    """Place a result if there is room, where one of its twins lay if that is free."""
    occupancy, cells, needs = places.occupancy, places.needs.cells[buffer], places.needs
    room = occupancy.room(occupancy.taken_between(life.start, life.end), cells)
    if not room:
        return False
    of_twins = (places.offsets[twin] // needs.cell for twin in twins if twin in places.offsets)
    position = next((position for position in of_twins if room >> position & 1), None)
    if position is None:
        position = _position(occupancy, room, cells, needs.fixed[buffer])
    places.take(buffer, life, position, cells)
    return True


def _position(occupancy: Occupancy, room: int, cells: int, life: Lifetime) -> int:
    """The low or the high end of the room: for tensors that stay, whichever splits the memory less.

    A result that only lingers for its transfer (``life`` is the time for which it is needed) does not stay: the high
    end is where loads go.
    """
    ends = (lowest(room), highest(room))
    if life.end - life.start <= 1 or ends[0] == ends[1]:
        return ends[0]
    samples = [occupancy.taken(slot) for slot in (life.start, (life.start + life.end) // 2, life.end)]

    def left(end: int) -> int:
        return sum(occupancy.longest_room(taken | span(end, cells)) for taken in samples)

    return max(ends, key=lambda end: (left(end), -end))
