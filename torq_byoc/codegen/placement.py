"""Where LRAM buffers lie and when: results at the steps that make and read them, loads as early as memory allows.

Time is counted in slots, one a step (a tile, or a part of one whose program is long).  A load issued in slot e runs
beside the slices of step e; its buffer is occupied from e to the last step that reads it.  Results and resident
tensors, whose lifetimes are given, are placed first; then every load, in the order of use: where a clean copy of its
bytes can stay until then nothing is loaded, else it moves to the earliest slot from which its place in memory is free
until it is needed.  What loads read from XRAM must have been stored before; their order is the business of
``load_queue``.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.clean_copies import Content, Copy
from torq_byoc.codegen.hl import Access, Load, RunProgram, SliceRun, Space, Store
from torq_byoc.codegen.load_queue import FillingGaps, InOrder, Waiting
from torq_byoc.codegen.occupancy import Occupancy, highest, lowest, span

MAX_LOOKAHEAD = 96


@dataclass(frozen=True)
class Lifetime:
    """Slots in which a buffer is occupied, both ends included."""

    start: int
    end: int


@dataclass(frozen=True)
class Early:
    """Which loads may be issued before the step that needs them.

    Attributes:
        across_nodes: before the first step of their node.
        across_tiles: those of a node's later tiles while earlier ones run; results linger for their stores.
        into_gaps: before a load that is used earlier but has to wait for a store.
    """

    across_nodes: bool = True
    across_tiles: bool = True
    into_gaps: bool = False


@dataclass(frozen=True)
class Relief:
    """Where earlier attempts ran out of room: steps whose loads are not issued early, steps in which no stored result
    lingers, and buffers that are loaded although a copy was there."""

    punctual: frozenset[int] = frozenset()
    swept: frozenset[int] = frozenset()
    anew: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Fetch:
    """All loads that fill one LRAM buffer: ``tile`` of a node whose first step is ``node_start``."""

    buffer: int
    first_use: int
    last_use: int
    sources: tuple[Access, ...]
    node_start: int
    tile: int
    cycles: int

    def floor(self, early: Early) -> int:
        """The earliest slot that is allowed."""
        if self.tile and not early.across_tiles:
            return self.first_use
        return 0 if early.across_nodes else self.node_start


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

    def place(self, early: Early) -> dict[int, int] | None:
        """Issue slot of every fetched buffer; fills ``lifetimes`` and ``offsets``, or ``failed``."""
        fetches = _fetches(self.program)
        fixed = _fixed_lifetimes(self.program, fetches)
        lingering = _lingering(self.program, fixed) if early.across_tiles else {}
        longest_first = sorted(fixed, key=lambda b: (fixed[b].start - fixed[b].end, fixed[b].start, -self._cells(b), b))
        for buffer in longest_first:
            if not self._fixed(buffer, fixed[buffer], lingering.get(buffer)):
                return None
            self._remember(buffer)
        slots: dict[int, int] = {}
        stores = _stores_by_buffer(self.program)
        queue = FillingGaps(self.program, MAX_LOOKAHEAD) if early.into_gaps else InOrder()
        for fetch in fetches:
            if self._reuse(fetch):
                continue
            ready = _ready_slot(fetch, stores)
            floor = max(fetch.first_use - MAX_LOOKAHEAD, ready, fetch.floor(early))
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

    def _reuse(self, fetch: _Fetch) -> bool:
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

    def _earliest(self, fetch: _Fetch, floor: int) -> int | None:
        """The earliest slot, from ``floor`` on, in which a fetched buffer finds room to stay."""
        slot = self.occupancy.earliest(fetch.first_use, fetch.last_use, floor, self._cells(fetch.buffer))
        if slot is None:
            self.failed = Lifetime(fetch.first_use, fetch.last_use)
        return slot

    def _fetch(self, fetch: _Fetch, slot: int) -> None:
        """Place a fetched buffer from a slot on in which there is room."""
        taken = self.occupancy.taken_between(slot, fetch.last_use)
        position = highest(self.occupancy.room(taken, self._cells(fetch.buffer)))
        self._take(fetch.buffer, Lifetime(slot, fetch.last_use), position)
        self.fetched[fetch.buffer] = fetch.first_use


def _fetches(program: RunProgram) -> list[_Fetch]:
    """Fetched buffers in the order of their first use."""
    sources: dict[int, list[Access]] = {}
    loads: dict[int, Load] = {}
    cycles: Counter[int] = Counter()
    for op in program.ops:
        if isinstance(op, Load):
            cycles[op.target.buffer] += op.cycles
            sources.setdefault(op.target.buffer, []).append(op.source)
            loads.setdefault(op.target.buffer, op)
    starts = node_starts(program)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for op in program.ops:
        if isinstance(op, SliceRun):
            for access in op.accesses:
                first.setdefault(access.buffer, op.step)
                last[access.buffer] = op.step
    fetches = []
    for b, reads in sources.items():
        if b in first:
            start = starts.get(loads[b].node, first[b])
            fetches.append(_Fetch(b, first[b], last[b], tuple(dict.fromkeys(reads)), start, loads[b].tile, cycles[b]))
    return fetches


def node_starts(program: RunProgram) -> dict[str, int]:
    """First step of every node."""
    starts: dict[str, int] = {}
    for op in program.ops:
        if isinstance(op, SliceRun):
            starts.setdefault(op.node, op.step)
    return starts


def _fixed_lifetimes(program: RunProgram, fetches: Sequence[_Fetch]) -> dict[int, Lifetime]:
    """Lifetimes of LRAM buffers that no load fills: tile results and resident tensors."""
    loaded = {fetch.buffer for fetch in fetches}
    lifetimes: dict[int, Lifetime] = {}
    for op in program.ops:
        for access in op.accesses:
            buffer = access.buffer
            if buffer in loaded or program.buffers[buffer].space is not Space.LRAM or isinstance(op, Load):
                continue
            known = lifetimes.get(buffer)
            lifetimes[buffer] = Lifetime(known.start if known else op.step, op.step)
    return lifetimes


def _lingering(program: RunProgram, fixed: Mapping[int, Lifetime]) -> dict[int, int]:
    """For every stored result the slot of the next tile of the node that made it: as long as it stays, that tile has
    another place and need not wait for the transfer.  A fused group runs its other nodes in between."""
    steps: dict[str, list[int]] = {}
    maker: dict[int, str] = {}
    for op in program.ops:
        if isinstance(op, SliceRun):
            if op.node not in steps or steps[op.node][-1] != op.step:
                steps.setdefault(op.node, []).append(op.step)
            maker[op.invocation.output.buffer] = op.node
    lingering = {}
    for op in program.ops:
        if isinstance(op, Store) and op.source.buffer in fixed:
            own = steps[maker[op.source.buffer]]
            position = bisect.bisect_right(own, fixed[op.source.buffer].end)
            if position < len(own):
                lingering[op.source.buffer] = own[position]
    return lingering


def _stores_by_buffer(program: RunProgram) -> dict[int, list[Store]]:
    stores: dict[int, list[Store]] = {}
    for op in program.ops:
        if isinstance(op, Store):
            stores.setdefault(op.target.buffer, []).append(op)
    return stores


def _ready_slot(fetch: _Fetch, stores: Mapping[int, Sequence[Store]]) -> int:
    """First slot after every store that wrote what the fetch reads."""
    ready = 0
    for source in fetch.sources:
        for store in reversed(stores.get(source.buffer, ())):
            if store.step + 1 <= ready:
                break
            if store.target.conflicts_with(source):
                ready = store.step + 1
                break
    return ready
