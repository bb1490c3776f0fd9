"""Random search: the base with one, two, sometimes more knobs changed."""

from __future__ import annotations

from torq_byoc.explore.tuning.space import Point
from torq_byoc.explore.tuning.strategy import Strategy, changed

STOP = 0.6
"""Chance that no further knob changes."""


class Search(Strategy):
    """Samples around the origin; learns nothing."""

    def propose(self) -> Point:
        """See ``Strategy``."""
        return changed(self.space, self.space.origin, self.random, int(self.random.geometric(STOP)))

    def observe(self, point: Point, cycles: int | None) -> None:
        """See ``Strategy``."""
