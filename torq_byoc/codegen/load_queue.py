"""The queue of loads in time: where the channel idles, and which later load may run there.

A load that reads what an earlier step stores waits for that store, and every load behind it waits as well, although
most of them bring constants.  Such a wait is a gap.  A later load is moved into a gap when it fits, or when the step
that needs it is also the one that the waiting load holds up: neither delays anything.

Before (w and v are constants)::

    slices  | step 0      | step 1 .......... | step 2
    loads   |             store t -> load t   load w   load v

After::

    slices  | step 0      | step 1 .......... | step 2
    loads   | load w      store t -> load t   load v

Times follow from slice cycles and transfers alone.  They also say how late a load may be issued at no cost, the channel
being busy until then: its place in LRAM stays free for as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from torq_byoc.codegen.hl import RunProgram, SliceRun, Store


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A load that looks for its place in the queue.

    Attributes:
        first_use: step that needs it.
        cycles: of its transfers.
        earliest: slot from which its place in memory is free.
        stored: step whose stores it reads; -1 for none.
    """

    first_use: int
    cycles: int
    earliest: int
    stored: int


@dataclass
class _Gap:
    """Idle cycles [begin, end) of the channel in front of a load that waits.

    What is moved here is issued in slots [after, before); ``first_use`` is the step that needs the load that waits.
    """

    after: int
    before: int
    begin: float
    end: float
    first_use: int


class InOrder:
    """Loads are issued in the order in which they are used."""

    def __init__(self) -> None:
        self._slot = 0

    def soonest(self, first_use: int) -> int:
        """The first slot in which the next load may be issued, given the step that needs it."""
        return min(self._slot, first_use)

    def enter(self, load: Waiting) -> int:
        """Slot in which a load is issued; called in the order of use."""
        slot = max(load.earliest, min(self._slot, load.first_use))
        self._slot = max(self._slot, slot)
        return slot


class FillingGaps:
    """Loads are issued in the order in which they are used, but for those that find a gap.

    Args:
        program: slice programs, loads and stores, step by step.
        lookahead: slots by which a load may be issued early: gaps further back are forgotten.
    """

    def __init__(self, program: RunProgram, lookahead: int) -> None:
        self._busy, self._storing = _cycles_by_step(program)
        self._lookahead = lookahead
        steps = len(self._busy)
        self._start = [0.0] * (steps + 1)
        """Start of every step; a lower bound for those whose loads are not all known."""
        self._loaded, self._stored = [0.0] * steps, [0.0] * (steps + 1)
        """End of what is loaded for a step, and of all stores up to it (the last entry: of none)."""
        self._known = 0
        self._slot = 0
        self._idle_from = 0.0
        self._gaps: list[_Gap] = []

    def soonest(self, first_use: int) -> int:
        """The first slot in which the next load may be issued, given the step that needs it."""
        self._advance(first_use)
        return min([self._slot, first_use, *[gap.after for gap in self._gaps]])

    def enter(self, load: Waiting) -> int:
        """Slot in which a load is issued; called in the order of use."""
        self._advance(load.first_use)
        if load.earliest < self._slot:
            for gap in self._gaps:
                slot = max(gap.after, load.earliest)
                begin = max(gap.begin, self._start[slot])
                if slot < gap.before and (gap.first_use == load.first_use or begin + load.cycles <= gap.end):
                    return self._insert(gap, self._latest(slot, gap.before - 1, begin), begin + load.cycles, load)
        return self._append(load)

    def _insert(self, gap: _Gap, slot: int, end: float, load: Waiting) -> int:
        """Move a load into a gap; what does not fit delays the load that waits, and all behind it."""
        late = max(0.0, end - gap.end)
        gap.after, gap.begin, gap.end = slot, end, gap.end + late
        self._idle_from += late
        self._loaded[load.first_use] = max(self._loaded[load.first_use] + late, end)
        return slot

    def _append(self, load: Waiting) -> int:
        """Queue a load behind all others."""
        slot = max(load.earliest, min(self._slot, load.first_use))
        slot = self._latest(slot, load.first_use, max(self._idle_from, self._start[slot]))
        begin = max(self._idle_from, self._start[slot], self._stored[load.stored])
        if begin > self._idle_from and slot > self._slot:
            self._gaps.append(_Gap(self._slot, slot, self._idle_from, begin, load.first_use))
        self._slot, self._idle_from = max(self._slot, slot), begin + load.cycles
        self._loaded[load.first_use] = max(self._loaded[load.first_use], self._idle_from)
        return slot

    def _latest(self, first: int, last: int, time: float) -> int:
        """The last slot that starts by a time."""
        while first < last and self._start[first + 1] <= time:
            first += 1
        return first

    def _advance(self, step: int) -> None:
        """Fix the times of all steps before one: their loads are queued."""
        for index in range(self._known, step):
            self._start[index] = max(self._start[index], self._loaded[index])
            end = self._start[index + 1] = self._start[index] + self._busy[index]
            before, storing = self._stored[index - 1], self._storing[index]
            self._stored[index] = max(before, end) + storing if storing else before
        if step > self._known:
            self._known = step
            self._gaps = [gap for gap in self._gaps if gap.before > step - self._lookahead and gap.begin < gap.end]


def _cycles_by_step(program: RunProgram) -> tuple[list[int], list[int]]:
    """Cycles of the busiest slice, and of the stores, of every step."""
    steps = 1 + max((op.step for op in program.ops), default=0)
    slices: list[dict[int, int]] = [{} for _ in range(steps)]
    stores = [0] * steps
    for op in program.ops:
        if type(op) is SliceRun:
            slices[op.step][op.slice_index] = slices[op.step].get(op.slice_index, 0) + op.cycles
        elif type(op) is Store:
            stores[op.step] += op.cycles
    return [max(own.values(), default=0) for own in slices], stores
