"""Pipelines of three engines, transfers in, slices and transfers out, in closed form.

Each engine works through the same steps in order; a step's work starts when its own loads and the work before are
done, and its stores follow its work.  When the engines are free at times (i, s, o), they end at

    i + loads,   max(i + load_work, s + work),   max(i + through, s + work_store, o + stores)

which is a product with a lower triangular matrix of the (max, +) algebra: pipelines that follow one another multiply,
and a repeated one has a closed form.  That loads run as far ahead as the channel lets them is what double buffering is
for; without it one step only begins when the one before has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

Cycles = Any
"""A float, or an array of n for n pipelines at once."""


def larger(a: Cycles, b: Cycles) -> Cycles:
    """The larger one, element by element where one of them is an array."""
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


class Flow(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The longest ways through a pipeline, in cycles.

    Attributes:
        loads, work, stores: busy cycles of the three engines.
        load_work: longest way from the first load to the last work.
        work_store: longest way from the first work to the last store.
        through: longest way through all three: what the pipeline takes when everything is free at its start.
    """

    loads: Cycles
    work: Cycles
    stores: Cycles
    load_work: Cycles
    work_store: Cycles
    through: Cycles

    @classmethod
    def step(cls, loads: Cycles, work: Cycles, stores: Cycles) -> Flow:
        """One step, whose parts follow one another."""
        return cls(loads, work, stores, loads + work, work + stores, loads + work + stores)

    @classmethod
    def evenly(
        cls, loads: Cycles, work: Cycles, stores: Cycles, first_load: Cycles, last_store: Cycles, steps: Cycles
    ) -> Flow:
        """Steps of equal work; what the first one loads and the last one stores is known."""
        one = work / steps
        load_work = larger(first_load + work, loads + one)
        work_store = larger(work + last_store, one + stores)
        through = larger(load_work + last_store, first_load + one + stores)
        return cls(loads, work, stores, load_work, work_store, through)

    @classmethod
    def of_steps(cls, steps: Iterable[tuple[float, float, float]]) -> Flow:
        """Steps with their loads, work and stores."""
        loads = work = stores = load_work = work_store = through = 0.0
        for load, one, store in steps:
            through = max(loads + load + one, load_work + one, through) + store
            load_work = max(loads + load, load_work) + one
            work_store = max(work + one, work_store) + store
            loads, work, stores = loads + load, work + one, stores + store
        return cls(loads, work, stores, load_work, work_store, through)

    def then(self, other: Flow, *, overlapping: bool = True) -> Flow:
        """Both, one after the other; of single pipelines, as ``times``."""
        if overlapping:
            load_work = max(self.loads + other.load_work, self.load_work + other.work)
            work_store = max(self.work + other.work_store, self.work_store + other.stores)
            across = self.load_work + other.work_store
            through = max(self.loads + other.through, across, self.through + other.stores)
        else:
            load_work = self.through + other.load_work
            work_store, through = self.work_store + other.through, self.through + other.through
        busy = (self.loads + other.loads, self.work + other.work, self.stores + other.stores)
        return Flow(*busy, load_work, work_store, through)

    def times(self, count: int, *, overlapping: bool = True) -> Flow:
        """So many of the same, one after the other; at least one."""
        more = count - 1
        if not more:
            return self
        busy = (count * self.loads, count * self.work, count * self.stores)
        if not overlapping:
            before = more * self.through
            return Flow(*busy, before + self.load_work, self.work_store + before, before + self.through)
        slowest = max(self.loads, self.work, self.stores)
        across = self.load_work + self.work_store + (more - 1) * slowest
        return Flow(
            *busy,
            self.load_work + more * max(self.loads, self.work),
            self.work_store + more * max(self.work, self.stores),
            max(self.through + more * max(self.loads, self.stores), across),
        )

    def after(self, early: Cycles) -> Cycles:
        """Cycles when the loads began ``early`` cycles before; the channel is busy for as long as ever."""
        return larger(larger(self.through - early, self.work_store), self.loads)


NOTHING = Flow.step(0.0, 0.0, 0.0)
"""A pipeline without steps."""
