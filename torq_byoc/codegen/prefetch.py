"""Prefetch and double buffering: how early each load is issued, and where its buffer lies.

Time is counted in slots, one a step (a tile, or a part of one whose program is long).  A load issued in
slot e runs beside the slices of step e; its buffer is occupied from e to the last step that reads it.
Results and resident tensors, whose lifetimes are given, are placed first; then every load, in the order
of use, moves to the earliest slot from which its place in memory is free until it is needed.  Loads keep
their order (the DMA engine is one queue), and what they read from XRAM must have been stored before.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torq_byoc.codegen.hl import Access, HlProgram, Load, Op, SliceRun, Space, Store
from torq_byoc.codegen.occupancy import Occupancy, highest, lowest, span

MAX_LOOKAHEAD = 96
MAX_ATTEMPTS = 40
CELL_WORDS = 4


@dataclass(frozen=True)
class Lifetime:
    """Slots in which a buffer is occupied, both ends included."""

    start: int
    end: int


@dataclass(frozen=True, eq=False)
class OrderedProgram:
    """Ops in their final linear order, and the lifetime and LRAM offset (bytes) of every LRAM buffer."""

    program: HlProgram
    lifetimes: Mapping[int, Lifetime]
    offsets: Mapping[int, int]


def order(program: HlProgram, capacity: int, word: int, *, hoist: bool = True) -> OrderedProgram | None:
    """Choose issue slots and LRAM offsets, and emit the linear order.

    Where a buffer finds no room, what was optional around it is given up (early loads of the same step,
    results that linger for their store) and everything is placed again.

    Args:
        program: torq_hl after the passes.
        capacity: bytes of LRAM.
        word: bytes of an LRAM word.
        hoist: False issues every load in the step that needs it.

    Returns:
        Ops ordered slot by slot (loads issued in the slot, slice programs, stores), or None when some
        buffer finds no room even so.
    """
    relief = Relief()
    for _ in range(MAX_ATTEMPTS):
        placement = _Placement(program, capacity, word * CELL_WORDS, relief)
        slots = placement.place(hoist)
        if slots is not None:
            return OrderedProgram(program.with_ops(_linear(program, slots)), placement.lifetimes, placement.offsets)
        more = placement.relieved()
        if more == relief:
            return None
        relief = more
    return None


@dataclass(frozen=True)
class Relief:
    """Where earlier attempts ran out of room: steps whose loads are not issued early, and steps in which no
    stored result lingers."""

    punctual: frozenset[int] = frozenset()
    swept: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Fetch:
    """All loads that fill one LRAM buffer."""

    buffer: int
    first_use: int
    last_use: int
    sources: tuple[Access, ...]


class _Placement:
    def __init__(self, program: HlProgram, capacity: int, cell: int, relief: Relief) -> None:
        self.program, self.cell, self.relief = program, cell, relief
        self.steps = 1 + max((op.step for op in program.ops), default=0)
        self.occupancy = Occupancy(self.steps, capacity // cell)
        self.lifetimes: dict[int, Lifetime] = {}
        self.offsets: dict[int, int] = {}
        self.failed = Lifetime(0, 0)
        self.fetched: dict[int, int] = {}

    def place(self, hoist: bool) -> dict[int, int] | None:
        """Issue slot of every fetched buffer; fills ``lifetimes`` and ``offsets``, or ``failed``."""
        fetches = _fetches(self.program)
        fixed = _fixed_lifetimes(self.program, fetches)
        lingering = _lingering(self.program, fixed)
        longest_first = sorted(fixed, key=lambda b: (fixed[b].start - fixed[b].end, fixed[b].start, -self._cells(b), b))
        for buffer in longest_first:
            if not self._fixed(buffer, fixed[buffer], lingering.get(buffer)):
                return None
        slots: dict[int, int] = {}
        stores = _stores_by_buffer(self.program)
        earliest = 0
        for fetch in fetches:
            floor = max(earliest, fetch.first_use - MAX_LOOKAHEAD, _ready_slot(fetch, stores))
            early = hoist and fetch.first_use not in self.relief.punctual
            slot = self._fetch(fetch, floor if early else fetch.first_use)
            if slot is None:
                return None
            slots[fetch.buffer] = slot
            earliest = max(earliest, slot)
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
        return Relief(punctual, swept)

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

    def _fetch(self, fetch: _Fetch, floor: int) -> int | None:
        """Place a fetched buffer in the earliest slot, from ``floor`` on, in which it finds room to stay."""
        cells, slot = self._cells(fetch.buffer), fetch.first_use
        taken = self.occupancy.taken_between(slot, fetch.last_use)
        room = self.occupancy.room(taken, cells)
        if not room:
            self.failed = Lifetime(fetch.first_use, fetch.last_use)
            return None
        while slot > floor:
            taken |= self.occupancy.taken(slot - 1)
            wider = self.occupancy.room(taken, cells)
            if not wider:
                break
            slot, room = slot - 1, wider
        self._take(fetch.buffer, Lifetime(slot, fetch.last_use), highest(room))
        self.fetched[fetch.buffer] = fetch.first_use
        return slot


def _fetches(program: HlProgram) -> list[_Fetch]:
    """Fetched buffers in the order of their first use."""
    sources: dict[int, list[Access]] = {}
    for op in program.ops:
        if isinstance(op, Load):
            sources.setdefault(op.target.buffer, []).append(op.source)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for op in program.ops:
        if isinstance(op, SliceRun):
            for access in op.accesses:
                first.setdefault(access.buffer, op.step)
                last[access.buffer] = op.step
    return [_Fetch(b, first[b], last[b], tuple(dict.fromkeys(s))) for b, s in sources.items() if b in first]


def _fixed_lifetimes(program: HlProgram, fetches: Sequence[_Fetch]) -> dict[int, Lifetime]:
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


def _lingering(program: HlProgram, fixed: Mapping[int, Lifetime]) -> dict[int, int]:
    """For every stored result the slot of its node's next tile: as long as it stays, that tile has another place and
    need not wait for the transfer.  A fused group runs its other nodes in between."""
    steps: dict[str, list[int]] = {}
    for op in program.ops:
        if isinstance(op, SliceRun) and (op.node not in steps or steps[op.node][-1] != op.step):
            steps.setdefault(op.node, []).append(op.step)
    lingering = {}
    for op in program.ops:
        if isinstance(op, Store) and op.source.buffer in fixed:
            own = steps[op.node]
            position = bisect.bisect_right(own, fixed[op.source.buffer].end)
            if position < len(own):
                lingering[op.source.buffer] = own[position]
    return lingering


def _stores_by_buffer(program: HlProgram) -> dict[int, list[Store]]:
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


def _linear(program: HlProgram, slots: Mapping[int, int]) -> list[Op]:
    keyed: list[tuple[tuple[int, int, int], Op]] = []
    for position, op in enumerate(program.ops):
        if isinstance(op, Load):
            if op.target.buffer in slots:
                keyed.append(((slots[op.target.buffer], 0, position), op))
        else:
            keyed.append(((op.step, 1 if isinstance(op, SliceRun) else 2, position), op))
    keyed.sort(key=lambda item: item[0])
    return [op for _, op in keyed]
