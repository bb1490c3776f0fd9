"""Which LRAM cells are taken in which slot: one bit a cell, one big integer a slot.

Finding room for a buffer over several slots is then a few integer operations, however many buffers there
are.  A cell is the unit of placement; offsets are multiples of it.  Neighbouring slots make a stretch: what is taken in
all of a stretch, and in any slot of it, is noted once for the stretch, since what stays for long stays in many slots.
"""

from __future__ import annotations

import functools

import msgspec

_REMEMBERED = 64
"""Masks whose room is remembered, of at most a few KiB each."""
STRETCH = 16
"""Slots of a stretch."""


class Opening(msgspec.Struct, frozen=True, gc=False):
    """Positions (a bit mask) at which there is room from a slot on."""

    slot: int
    positions: int


class Occupancy:
    """Occupied cells of every slot.

    Args:
        slots: number of slots.
        cells: cells of the memory.
    """

    def __init__(self, slots: int, cells: int) -> None:
        self._own = [0] * slots
        """Taken in a slot, what is taken in all of its stretch aside."""
        self._whole = [0] * (slots // STRETCH + 1)
        self._any = self._whole.copy()
        """Taken in all slots of a stretch, and in any of them."""
        self._all = (1 << cells) - 1

    def copy(self) -> Occupancy:
        """The same cells taken, to be filled further."""
        other = Occupancy(0, 0)
        other._own, other._whole, other._any = self._own.copy(), self._whole.copy(), self._any.copy()
        other._all = self._all
        return other

    def taken(self, slot: int) -> int:
        """Bit mask of the cells occupied in a slot."""
        return self._own[slot] | self._whole[slot // STRETCH]

    def taken_between(self, first: int, last: int) -> int:
        """Bit mask of the cells occupied in any slot from ``first`` to ``last``, both included."""
        own, whole = self._own, self._whole
        low, high = -(-first // STRETCH), (last + 1) // STRETCH
        if low >= high:  # no stretch as a whole
            taken = whole[first // STRETCH] | whole[last // STRETCH] if first <= last else 0
            for mask in own[first : last + 1]:
                taken |= mask
            return taken
        begin, end = low * STRETCH, high * STRETCH
        taken = 0
        for mask in self._any[low:high]:
            taken |= mask
        if first < begin:
            taken |= whole[low - 1]
            for mask in own[first:begin]:
                taken |= mask
        if end <= last:
            taken |= whole[high]
            for mask in own[end : last + 1]:
                taken |= mask
        return taken

    def room(self, taken: int, cells: int) -> int:
        """Bit mask of the positions at which ``cells`` free cells begin, given a mask of taken cells."""
        return _room(self._all ^ taken, cells)

    def opening(self, first: int, last: int, cells: int) -> Opening:
        """Where ``cells`` cells are free from slot ``first`` to ``last``."""
        return Opening(first, self.room(self.taken_between(first, last), cells))

    def earliest(self, first: int, last: int, floor: int, cells: int) -> Opening | None:
        """The earliest slot, from ``floor`` on, such that ``cells`` cells are free from it to ``last`` at one position;
        None when there is no room even from ``first`` on.

        The longer the time, the less room there is: slots are tried by bisection, after ``floor``, which is right most
        often.
        """
        room = self.room(self.taken_between(floor, last), cells)
        if room:
            return Opening(floor, room)
        found, low, high = None, floor + 1, first
        taken, known = self.taken_between(first, last), first
        while low <= high:
            middle = (low + high + 1) // 2
            longer = taken | self.taken_between(middle, known - 1)
            room = self.room(longer, cells)
            if room:
                found, high = Opening(middle, room), middle - 1
                taken, known = longer, middle
            else:
                low = middle + 1
        return found

    def longest_room(self, taken: int) -> int:
        """Cells of the longest free stretch, given a mask of taken cells."""
        return _longest_room(self._all ^ taken)

    def take(self, first: int, last: int, offset: int, cells: int) -> None:
        """Occupy cells in every slot from ``first`` to ``last``."""
        mask, own, taken = span(offset, cells), self._own, self._any
        low, high = -(-first // STRETCH), (last + 1) // STRETCH
        for stretch in range(low, high):
            self._whole[stretch] |= mask
        for stretch in range(first // STRETCH, last // STRETCH + 1):
            taken[stretch] |= mask
        if low >= high:  # no stretch as a whole
            for slot in range(first, last + 1):
                own[slot] |= mask
            return
        for slot in range(first, low * STRETCH):
            own[slot] |= mask
        for slot in range(high * STRETCH, last + 1):
            own[slot] |= mask


@functools.lru_cache(maxsize=_REMEMBERED)
def _room(free: int, cells: int) -> int:
    """Positions at which ``cells`` cells of a mask begin: the tiles of a node look into much the same memory."""
    length = 1
    while length < cells and free:
        step = min(length, cells - length)
        free &= free >> step
        length += step
    return free


@functools.lru_cache(maxsize=_REMEMBERED)
def _longest_room(free: int) -> int:
    """Cells of the longest stretch of a mask."""
    if not free:
        return 0
    doubled = [free]
    while wider := doubled[-1] & (doubled[-1] >> (1 << (len(doubled) - 1))):
        doubled.append(wider)
    room, length = doubled[-1], 1 << (len(doubled) - 1)
    for power in reversed(range(len(doubled) - 1)):
        longer = room & (doubled[power] >> length)
        if longer:
            room, length = longer, length + (1 << power)
    return length


def span(offset: int, cells: int) -> int:
    """Bit mask of ``cells`` cells from ``offset`` on."""
    return ((1 << cells) - 1) << offset


def lowest(positions: int) -> int:
    """The lowest position of a non-empty mask."""
    return (positions & -positions).bit_length() - 1


def highest(positions: int) -> int:
    """The highest position of a non-empty mask."""
    return positions.bit_length() - 1
