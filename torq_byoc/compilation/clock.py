"""How long the stages of a compilation take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StageClock:
    """Seconds by stage and by torq_hl pass.

    Args:
        progress: called with a stage's name when it starts.
    """

    def __init__(self, progress: Callable[[str], None] | None = None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.passes: dict[str, float] = {}

    def record_pass(self, name: str, seconds: float) -> None:
        """Add a pass's share of the "generate" stage."""
        self.passes[name] = self.passes.get(name, 0.0) + seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the block to a stage; a stage may be entered many times."""
        if self.progress:
            self.progress(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
