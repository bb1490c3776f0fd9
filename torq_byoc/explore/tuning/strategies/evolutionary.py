"""Evolutionary search: a small population of the best points, crossed and mutated."""

from __future__ import annotations

from torq_byoc.explore.tuning.space import Point, Space
from torq_byoc.explore.tuning.strategy import Strategy, changed

POPULATION = 4
CROSSED = 0.3
"""Chance that a child has two parents."""


class Search(Strategy):
    """Steady state: every proposal is a child of the present population, and enters it when it is good enough."""

    def __init__(self, space: Space, cycles: int, seed: int) -> None:
        super().__init__(space, cycles, seed)
        self._population: list[tuple[int, Point]] = [(cycles, space.origin)]

    def propose(self) -> Point:
        """See ``Strategy``."""
        child = self._parent()
        if len(self._population) > 1 and self.random.random() < CROSSED:
            other = self._parent()
            child = tuple(a if self.random.random() < 0.5 else b for a, b in zip(child, other, strict=True))
        return changed(self.space, child, self.random, int(self.random.integers(1, 3)))

    def observe(self, point: Point, cycles: int | None) -> None:
        """See ``Strategy``."""
        if cycles is not None and all(point != known for _, known in self._population):
            self._population = sorted([*self._population, (cycles, point)])[:POPULATION]

    def _parent(self) -> Point:
        """The better of two members."""
        first, second = self.random.integers(0, len(self._population), 2)
        return self._population[min(first, second)][1]
