"""Where LRAM buffers lie and when: results at the steps that make and read them, loads as early as memory allows.

A load issued in slot e (``lifetimes``) runs beside the slices of step e; its buffer is occupied from e to the last step
that reads it.  Results and resident tensors, whose lifetimes are given, are placed first; then every load, in the order
of use: where a clean copy of its bytes can stay until then nothing is loaded, else it moves to the earliest slot from
which its place in memory is free until it is needed.  What loads read from XRAM must have been stored before; their
order is the business of ``load_queue``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torq_byoc.codegen.clean_copies import Content, Copy
from torq_byoc.codegen.hl import RunProgram
from torq_byoc.codegen.lifetimes import (
    Fetch,
    Lifetime,
    all_fetches,
    fixed_lifetimes,
    lingering_until,
    ready_slot,
    stores_by_buffer,
)
from torq_byoc.codegen.load_queue import FillingGaps, InOrder, Waiting
from torq_byoc.codegen.occupancy import Occupancy, highest, lowest, span

MAX_LOOKAHEAD = 96


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
    """

    into_gaps: bool = False
    largest_first: bool = False


@dataclass(frozen=True)
class Relief:
    """Where earlier attempts ran out of room: steps whose loads are not issued early, steps in which no stored result
    lingers, and buffers that are loaded although a copy was there."""

    punctual: frozenset[int] = frozenset()
    swept: frozenset[int] = frozenset()
    anew: frozenset[int] = frozenset()


class Placement:
    """One attempt at placing all buffers.

    Args:
        program: slice programs, loads and stores, step by step.
        capacity: bytes of LRAM.
        cell: bytes of the unit of placement.
        relief: what to give up.
        copies: what buffers hold that XRAM holds as well; none where such copies shall not be used again.

    Attributes:
        lifetimes: slots of every placed buffer.
        offsets: its LRAM offset in bytes.
        reused: for buffers that need no load, the buffer that holds the same.
    """

    def __init__(
        self, program: RunProgram, capacity: int, cell: int, relief: Relief, copies: Mapping[int, Copy]
    ) -> None:
        self.program, self.cell, self.relief, self.copies = program, cell, relief, copies
        self.steps = 1 + max((op.step for op in program.ops), default=0)
        self.occupancy = Occupancy(self.steps, capacity // cell)
        self.lifetimes: dict[int, Lifetime] = {}
        self.offsets: dict[int, int] = {}
        self.failed = Lifetime(0, 0)
        self.fetched: dict[int, int] = {}
        self.reused: dict[int, int] = {}
        self.holders: dict[Content, int] = {}

    def place(self, early: Early, arrangement: Arrangement) -> dict[int, int] | None:
        """Issue slot of every fetched buffer; fills ``lifetimes`` and ``offsets``, or ``failed``."""
        fetches = all_fetches(self.program)
        fixed = fixed_lifetimes(self.program, fetches)
        lingering = lingering_until(self.program, fixed) if early.across_tiles else {}
        for buffer in sorted(fixed, key=self._rank(fixed, arrangement)):
            if not self._fixed(buffer, fixed[buffer], lingering.get(buffer)):
                return None
            self._remember(buffer)
        slots: dict[int, int] = {}
        stores = stores_by_buffer(self.program)
        queue = FillingGaps(self.program, MAX_LOOKAHEAD) if arrangement.into_gaps else InOrder()
        for fetch in fetches:
            if self._reuse(fetch):
                continue
            ready = ready_slot(fetch, stores)
            floor = max(fetch.first_use - MAX_LOOKAHEAD, ready, early.floor(fetch))
            earliest = self._earliest(fetch, fetch.first_use if fetch.first_use in self.relief.punctual else floor)
            if earliest is None:
                return None
            slots[fetch.buffer] = queue.enter(Waiting(fetch.first_use, fetch.cycles, earliest, ready - 1))
            self._fetch(fetch, slots[fetch.buffer])
            self._remember(fetch.buffer)
        return slots

    def relieved(self) -> Relief:
        """What to give up after a failure: first the options of the failed buffer's own steps, then those of
        the loads that are in its way."""
        known, failed = self.relief, self.failed
        punctual = known.punctual | {failed.start}
        swept = known.swept | frozenset(range(failed.start, failed.end + 1))
        if (punctual, swept) == (known.punctual, known.swept):
            beside = (
                b
                for b in self.fetched
                if self.lifetimes[b].start <= failed.end and self.lifetimes[b].end >= failed.start
            )
            punctual |= {self.fetched[buffer] for buffer in beside}
        kept = {
            buffer
            for buffer, holder in self.reused.items()
            if self.lifetimes[holder].start <= failed.end and self.lifetimes[holder].end >= failed.start
        }
        return Relief(punctual, swept, known.anew | kept)

    def _rank(self, lives: Mapping[int, Lifetime], arrangement: Arrangement) -> Callable[[int], tuple[int, ...]]:
        """The order in which results are placed."""

        def rank(buffer: int) -> tuple[int, ...]:
            life, cells = lives[buffer], self._cells(buffer)
            slots = life.end - life.start + 1
            return (-slots * cells, buffer) if arrangement.largest_first else (-slots, life.start, -cells, buffer)

        return rank

    def _cells(self, buffer: int) -> int:
        return max(1, -(-self.program.buffers[buffer].nbytes // self.cell))

    def _take(self, buffer: int, life: Lifetime, position: int) -> None:
        self.occupancy.take(life.start, life.end, position, self._cells(buffer))
        self.lifetimes[buffer] = life
        self.offsets[buffer] = position * self.cell

    def _fixed(self, buffer: int, life: Lifetime, until: int | None) -> bool:
        """Place a result; one that is stored stays ``until`` a later slot, for its transfer, where there is room."""
        options = [life]
        if until is not None and self.relief.swept.isdisjoint(range(life.end, until + 1)):
            options.insert(0, Lifetime(life.start, until))
        for wanted in options:
            taken = self.occupancy.taken_between(wanted.start, wanted.end)
            room = self.occupancy.room(taken, self._cells(buffer))
            if room:
                self._take(buffer, wanted, self._position(room, self._cells(buffer), wanted))
                return True
        self.failed = life
        return False

    def _position(self, room: int, cells: int, life: Lifetime) -> int:
        """The low or the high end of the room: for tensors that stay, whichever splits the memory less."""
        ends = (lowest(room), highest(room))
        if life.end - life.start <= 1:
            return ends[0]
        samples = [self.occupancy.taken(slot) for slot in (life.start, (life.start + life.end) // 2, life.end)]

        def left(end: int) -> int:
            return sum(self.occupancy.longest_room(taken | span(end, cells)) for taken in samples)

        return max(ends, key=lambda end: (left(end), -end))

    def _remember(self, buffer: int) -> None:
        if buffer in self.copies:
            self.holders[self.copies[buffer].content] = buffer

    def _reuse(self, fetch: Fetch) -> bool:
        """Let the copy that another node left stay until the fetch is needed, if its place is free for so long."""
        copy = self.copies.get(fetch.buffer)
        holder = self.holders.get(copy.content) if copy and fetch.buffer not in self.relief.anew else None
        if copy is None or holder is None or self.copies[holder].node == copy.node:
            return False
        life, cells, position = self.lifetimes[holder], self._cells(holder), self.offsets[holder] // self.cell
        if cells != self._cells(fetch.buffer) or fetch.first_use - life.end > MAX_LOOKAHEAD:
            return False
        if fetch.last_use > life.end:
            if self.occupancy.taken_between(life.end + 1, fetch.last_use) & span(position, cells):
                return False
            self.occupancy.take(life.end + 1, fetch.last_use, position, cells)
            self.lifetimes[holder] = Lifetime(life.start, fetch.last_use)
        self.reused[fetch.buffer] = holder
        return True

    def _earliest(self, fetch: Fetch, floor: int) -> int | None:
        """The earliest slot, from ``floor`` on, in which a fetched buffer finds room to stay."""
        slot = self.occupancy.earliest(fetch.first_use, fetch.last_use, floor, self._cells(fetch.buffer))
        if slot is None:
            self.failed = Lifetime(fetch.first_use, fetch.last_use)
        return slot

    def _fetch(self, fetch: Fetch, slot: int) -> None:
        """Place a fetched buffer from a slot on in which there is room."""
        taken = self.occupancy.taken_between(slot, fetch.last_use)
        position = highest(self.occupancy.room(taken, self._cells(fetch.buffer)))
        self._take(fetch.buffer, Lifetime(slot, fetch.last_use), position)
        self.fetched[fetch.buffer] = fetch.first_use
