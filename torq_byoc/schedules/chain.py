"""Whole plans as one chain: when each engine is free between two units, nodes or fused groups.

The sum of the units' prices says nothing of what lies between them.  Units that follow one another are one pipeline
(``flow``), but for two things: what is loaded before its unit begins lies in LRAM beside the unit before, and what a
unit reads from XRAM must have been stored there.

Before: three units of 1,000 cycles each, whose price lets half of the constants be loaded early wherever two of the
unit fit the LRAM.  After: the constants are loaded as early as the channel and the room beside the units before allow,
and the second unit's first tile waits for the first unit's last store, which its constants need not do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from torq_byoc.schedules.flow import Flow


class Unit(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A node or a fused group, beside what is resident there.

    Attributes:
        flow: its pipeline, with all of its sequencer code.
        constants: cycles in which its first step loads constants and programs; at most all of its loads.
        largest: cycles of the largest transfer among those.
        shares: of the largest tensor that it reads from XRAM, what its first step needs along every axis, 0..1; empty
            when it reads none.
        along: axis of its result along which its stores move on; -1 for none.
        room: cycles of transfers in for which the LRAM has room beside it.
        steps: tiles, or bands and their nodes.
        extra: what the search adds to cycles.
    """

    flow: Flow
    constants: float
    largest: float
    shares: tuple[float, ...]
    along: int
    room: float
    steps: int
    extra: float

    def share_of(self, along: int) -> float:
        """Of a tensor that is stored along an axis, what has to be there for the first step: of one that is stored by
        channels all of it, where the step needs a few rows of all channels."""
        return self.shares[along] if 0 <= along < len(self.shares) else math.prod(self.shares)


class Cut(msgspec.Struct, frozen=True, gc=False):
    """What a partial plan means to the next unit, in cycles.

    Attributes:
        loads, work: when the channel in and the slices are free.
        room: cycles of transfers in for which the LRAM has room until the slices are.
        storing, stores: when the first part of the last stored tensor is in XRAM, and when all of it is.
        along: axis along which that tensor is stored; -1 for none.
        extra: what the search has added so far.
    """

    loads: float = 0.0
    work: float = 0.0
    room: float = math.inf
    storing: float = 0.0
    stores: float = 0.0
    along: int = -1
    extra: float = 0.0

    @property
    def cycles(self) -> float:
        """When all engines are done."""
        return max(self.loads, self.work, self.stores)

    @property
    def price(self) -> float:
        """What the search minimises."""
        return self.cycles + self.extra

    def then(self, unit: Unit) -> Cut:
        """One more unit: the product of ``flow`` with more bounds.

        1. Loads for what follows lead the slices by no more than what the LRAM has room for beside this unit.  Where
           that is less than the next unit's constants, the largest of them waits for the slices: a transfer has its
           room as a whole or not at all.
        2. The first load of a tensor waits until as much of what was stored last is in XRAM as it needs; that tensor
           stands for whichever the unit reads.  Constants are loaded before that.
        3. The last load of a tensor waits for the whole of it, and the last step for that load.
        4. Without double buffering the slices wait for loads inside the unit: what makes the way from its first work to
           its last store longer than both.
        """
        flow, steps = unit.flow, unit.steps
        waits = max(0.0, flow.work_store - flow.work - flow.stores)
        begin, last = self.loads, -math.inf
        if unit.constants > self.room:
            begin = max(begin, self.work + unit.largest - unit.constants)
        if unit.shares:
            share = unit.share_of(self.along)
            begin = max(begin, self.storing + share * (self.stores - self.storing) - unit.constants)
            last = self.stores + (flow.loads - unit.constants) / steps
        work = max(begin + flow.load_work, self.work + flow.work + waits, last + flow.work / steps)
        loads = max(begin + flow.loads, last, work - unit.room)
        extra = self.extra + unit.extra
        if not flow.stores:
            return Cut(loads, work, unit.room, self.storing, self.stores, self.along, extra)
        stores = max(begin + flow.through, self.work + flow.work_store, self.stores + flow.stores)
        stores = max(stores, last + (flow.work + flow.stores) / steps)
        storing = min(stores, work - flow.work + flow.work / steps)
        return Cut(loads, work, unit.room, storing, stores, unit.along, extra)

    def beaten_by(self, other: Cut) -> bool:
        """Whether whatever follows is no worse after the other one."""
        return (
            other.loads <= self.loads
            and other.work <= self.work
            and other.room >= self.room
            and other.storing <= self.storing
            and other.stores <= self.stores
            and other.along == self.along
            and other.extra <= self.extra
        )


IMPOSSIBLE = Cut(work=math.inf)
"""After a unit that does not fit."""


def chained(units: Iterable[Unit | None]) -> Cut:
    """The end of a whole plan; of one with a unit that does not fit (None), ``IMPOSSIBLE``."""
    cut = Cut()
    for unit in units:
        if unit is None:
            return IMPOSSIBLE
        cut = cut.then(unit)
    return cut
