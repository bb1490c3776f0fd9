"""What a search strategy is: something that proposes points of a space and is told what they were worth.

A strategy knows spaces and cycles alone.  It never sees a graph, a schedule or a program; the tuner turns its points
into decision records (``Space.record``), compiles and simulates them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from torq_byoc.explore.tuning.space import Point, Space


class Strategy(ABC):
    """A search in one space.

    Args:
        space: where to search; ``space.origin`` is known already.
        cycles: of the origin.
        seed: the only source of chance: equal seeds and equal answers give equal proposals.
    """

    def __init__(self, space: Space, cycles: int, seed: int) -> None:
        self.space, self.cycles = space, cycles
        self.random = np.random.default_rng(seed)

    @abstractmethod
    def propose(self) -> Point:
        """The next point to be measured; points that were measured before cost no trial."""

    @abstractmethod
    def observe(self, point: Point, cycles: int | None) -> None:
        """Learn what the point just proposed was worth; None when it does not fit or does not apply."""


def changed(space: Space, point: Point, random: np.random.Generator, count: int = 1) -> Point:
    """A neighbour: other options of some knobs, those of expensive nodes more often.

    Args:
        space: the space.
        point: where to start.
        random: source of chance.
        count: how many knobs change.
    """
    weights = np.asarray(space.weights)
    picked = random.choice(len(weights), size=min(count, len(weights)), replace=False, p=weights / weights.sum())
    options = list(point)
    for index in picked:
        others = [option for option in range(space.knobs[index].options) if option != point[index]]
        options[index] = int(random.choice(others))
    return tuple(options)
