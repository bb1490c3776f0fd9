"""Where LRAM buffers lie and when: results at the steps that make and read them, loads as early as memory allows.

A load issued in slot e (``lifetimes``) runs beside the slices of step e; its buffer is occupied from e to the last step
that reads it.  Results and resident tensors, whose lifetimes are given, are placed first; then every load, in the order
of use: where a clean copy of its bytes can stay until then nothing is loaded, else it moves to the earliest slot from
which its place in memory is free until it is needed.  What loads read from XRAM must have been stored before; their
order is the business of ``load_queue``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torq_byoc.codegen.lifetimes import Fetch, Lifetime
from torq_byoc.codegen.load_queue import FillingGaps, InOrder, Waiting
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.occupancy import Opening, highest, span
from torq_byoc.codegen.result_places import Places, ResultPlacer, lingering_results, swept_further

MAX_LOOKAHEAD = 96
OFTEN = 8
"""Tiles of a node whose loads found no room early, after which none of its later ones is expected to find it."""


@dataclass(frozen=True)
class Early:
    """Which loads may be issued before the step that needs them.

    Attributes:
        across_nodes: before the first step of their node.
        across_tiles: those of a node's later tiles while earlier ones run; results linger for their stores.
    """

    across_nodes: bool = True
    across_tiles: bool = True

    def floor(self, fetch: Fetch) -> int:
        """The earliest slot that is allowed for the loads of a buffer."""
        if fetch.tile and not self.across_tiles:
            return fetch.first_use
        return 0 if self.across_nodes else fetch.node_start


@dataclass(frozen=True)
class Arrangement:
    """How buffers look for their places; no choice is the best for every program.

    Attributes:
        into_gaps: loads may be issued before others that are used earlier but have to wait for a store.
        largest_first: results are placed in the order of bytes times slots, not of slots alone.
        by_twins: operands take the places of their twins where these are free in time, so that programs come out equal.
        linger_last: results stop to linger only where giving up early loads does not make enough room.
    """

    into_gaps: bool = False
    largest_first: bool = False
    by_twins: bool = False
    linger_last: bool = False


@dataclass(frozen=True)
class Relief:
    """Where earlier attempts ran out of room: steps whose loads are not issued early, cells of the largest stored
    result that may linger in a step, and buffers that are loaded although a copy was there."""

    punctual: frozenset[int] = frozenset()
    swept: Mapping[int, int] = field(default_factory=dict)
    anew: frozenset[int] = frozenset()


def can_serve(needs: Needs, holder: int, life: Lifetime, fetch: Fetch) -> bool:
    """Whether a buffer with the content of a fetch, of its size and from another node, is there late enough to stay."""
    own = needs.copies[holder].node == needs.copies[fetch.buffer].node
    return not own and needs.cells[holder] == needs.cells[fetch.buffer] and fetch.first_use - life.end <= MAX_LOOKAHEAD


class Placement:
    """One attempt at placing all buffers.

    Args:
        results: places results and resident tensors.
        relief: what to give up.

    Attributes:
        places: of the buffers placed so far.
        failed, failed_node: when the buffer that found no room is needed, and the first step of the node that loads
            it; -1 for a result.
        reused: for buffers that need no load, the buffer that holds the same.
        reserved: for buffers whose place is kept free for them, from which slot on, and the place.
    """

    def __init__(self, results: ResultPlacer, relief: Relief) -> None:
        self.results, self.needs, self.relief = results, results.needs, relief
        self.places = Places.none(results.needs, results.capacity)
        self.failed, self.failed_node = Lifetime(0, 0), -1
        self.fetched: dict[int, int] = {}
        self.reused: dict[int, int] = {}
        self.reserved: dict[int, tuple[int, int]] = {}

    def place(self, early: Early, arrangement: Arrangement) -> dict[int, int] | None:
        """Issue slot of every fetched buffer; fills ``places``, or ``failed``."""
        lingering = lingering_results(self.needs, self.relief.swept) if early.across_tiles else frozenset()
        results = self.results.placed(lingering, largest_first=arrangement.largest_first, by_twins=arrangement.by_twins)
        if results.failed is not None:
            self.failed = results.failed
            return None
        self.places = results.places.copy()
        slots: dict[int, int] = {}
        queue = FillingGaps(self.needs.program, MAX_LOOKAHEAD) if arrangement.into_gaps else InOrder()
        for fetch, ready in self.needs.fetches:
            if self._reuse(fetch):
                continue
            opening = self._opening(fetch, ready, early, queue)
            if opening is None:
                self.failed, self.failed_node = Lifetime(fetch.first_use, fetch.last_use), fetch.node_start
                return None
            slots[fetch.buffer] = opening.slot
            self._fetch(fetch, opening)
            if arrangement.by_twins:
                self._reserve(fetch)
                self._keep(fetch.buffer)
        return slots

    def relieved(self, *, linger_last: bool) -> Relief:
        """What to give up after a failure, one after the other: results that linger in the failed buffer's steps, its
        early loads (in this order or the other), those of the loads that are in its way.

        What two tiles of a node lack its later tiles lack as well: results stop to linger in all of these.  That loads
        come early is what double buffering is: only where many tiles had to do without, the later ones do.
        """
        known, failed = self.relief, self.failed

        def in_the_way(buffer: int) -> bool:
            life = self.places.lifetimes[buffer]
            return life.start <= failed.end and life.end >= failed.start

        anew = known.anew | {buffer for buffer, holder in self.reused.items() if in_the_way(holder)}
        tiles = self.needs.tiles_of.get(self.failed_node, ())
        before, later = [t for t in tiles if t < failed.start], [t for t in tiles if t > failed.start]
        starts = {failed.start, *(later if any(step in known.swept for step in before) else ())}
        until = max(failed.end, *starts)
        steps = {step for at in starts for step in range(at, min(at + failed.end - failed.start, until) + 1)}
        swept = swept_further(self.needs, known.swept, steps)
        often = len(known.punctual.intersection(before)) >= OFTEN
        punctual = known.punctual | {failed.start, *(later if often else ())}
        lingering, early = Relief(known.punctual, swept, anew), Relief(punctual, known.swept, anew)
        for less in (early, lingering) if linger_last else (lingering, early):
            if (less.punctual, less.swept) != (known.punctual, known.swept):
                return less
        beside = {use for buffer, use in self.fetched.items() if in_the_way(buffer)}
        return Relief(punctual | beside, swept, anew)

    def _reuse(self, fetch: Fetch) -> bool:
        """Let the copy that another node left stay until the fetch is needed, if its place is free for so long."""
        needs, places = self.needs, self.places
        copy = needs.copies.get(fetch.buffer)
        holder = places.holders.get(copy.content) if copy and fetch.buffer not in self.relief.anew else None
        if holder is None or not can_serve(needs, holder, places.lifetimes[holder], fetch):
            return False
        life, cells, position = places.lifetimes[holder], needs.cells[holder], places.offsets[holder] // needs.cell
        if fetch.last_use > life.end:
            if places.occupancy.taken_between(life.end + 1, fetch.last_use) & span(position, cells):
                return False
            places.occupancy.take(life.end + 1, fetch.last_use, position, cells)
            places.lifetimes[holder] = Lifetime(life.start, fetch.last_use)
        self.reused[fetch.buffer] = holder
        return True

    def _opening(self, fetch: Fetch, ready: int, early: Early, queue: FillingGaps | InOrder) -> Opening | None:
        """The slot in which a fetched buffer is loaded: once the queue takes it and there is room for it to stay."""
        floor = max(fetch.first_use - MAX_LOOKAHEAD, ready, early.floor(fetch), queue.soonest(fetch.first_use))
        if fetch.first_use in self.relief.punctual:
            floor = fetch.first_use
        occupancy, cells = self.places.occupancy, self.needs.cells[fetch.buffer]
        if fetch.buffer in self.reserved:
            free, position = self.reserved[fetch.buffer]
            waiting = Waiting(fetch.first_use, fetch.cycles, max(floor, free), ready - 1)
            return Opening(queue.enter(waiting), 1 << position)
        earliest = occupancy.earliest(fetch.first_use, fetch.last_use, floor, cells)
        if earliest is None:
            return None
        slot = queue.enter(Waiting(fetch.first_use, fetch.cycles, earliest.slot, ready - 1))
        return earliest if slot == earliest.slot else occupancy.opening(slot, fetch.last_use, cells)

    def _reserve(self, fetch: Fetch) -> None:
        """Keep the place of a buffer for those that take it after it, if it is free for so long."""
        needs, places = self.needs, self.places
        following = self._following(fetch)
        if not following:
            return
        position = places.offsets[fetch.buffer] // needs.cell
        if fetch.buffer not in self.reserved:
            cells, last = needs.cells[fetch.buffer], following[-1].last_use
            if places.occupancy.taken_between(fetch.last_use + 1, last) & span(position, cells):
                return
            places.occupancy.take(fetch.last_use + 1, last, position, cells)
        self.reserved[following[0].buffer] = (fetch.last_use + 1, position)

    def _following(self, fetch: Fetch) -> list[Fetch]:
        """The buffers of one size that can take a place one after the other, behind a given one."""
        needs, found = self.needs, []
        for buffer in needs.twins.chain(fetch.buffer):
            after = needs.fetched.get(buffer)
            if after is None or after.first_use <= fetch.last_use or needs.cells[buffer] != needs.cells[fetch.buffer]:
                break
            found.append(after)
            fetch = after
        return found

    def _keep(self, program: int) -> None:
        """Let a slice program stay for the next ones like it, if its place is free for so long."""
        needs, places = self.needs, self.places
        life, last = places.lifetimes[program], needs.twins.kept.get(program, 0)
        if last <= life.end:
            return
        cells, position = needs.cells[program], places.offsets[program] // needs.cell
        if not places.occupancy.taken_between(life.end + 1, last) & span(position, cells):
            places.occupancy.take(life.end + 1, last, position, cells)
            places.lifetimes[program] = Lifetime(life.start, last)

    def _fetch(self, fetch: Fetch, opening: Opening) -> None:
        """Place a fetched buffer where there is room, for the tiles after it as well if possible."""
        needs, occupancy = self.needs, self.places.occupancy
        cells, life = needs.cells[fetch.buffer], Lifetime(opening.slot, fetch.last_use)
        if fetch.buffer in self.reserved:
            self.places.settle(fetch.buffer, life, highest(opening.positions))
            self.fetched[fetch.buffer] = fetch.first_use
            return
        if fetch.buffer in needs.roomier:
            wide = occupancy.opening(life.start, life.end, needs.roomier[fetch.buffer])
            if wide.positions:
                opening, cells = wide, needs.roomier[fetch.buffer]
        self.places.take(fetch.buffer, life, highest(opening.positions), cells)
        self.fetched[fetch.buffer] = fetch.first_use
