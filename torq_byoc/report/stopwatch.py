"""Wall-clock medians on this machine, within a time budget."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

MAX_RUNS = 50


@dataclass(frozen=True)
class Timing:
    """Median microseconds of so many runs."""

    us: float
    runs: int


def median_time(function: Callable[[], object], budget: float = 1.0) -> Timing:
    """Median duration of a call after one that is not counted; see ``median_of``."""

    def duration() -> float:
        started = time.perf_counter()
        function()
        return time.perf_counter() - started

    return median_of(duration, budget)


def median_of(measure: Callable[[], float], budget: float = 1.0) -> Timing:
    """Median of what a measurement returns, the first one not counted.

    Args:
        measure: returns seconds.
        budget: seconds after which no further measurement begins; the first counted one always does.
    """
    measure()
    times: list[float] = []
    begun = time.perf_counter()
    while not times or (time.perf_counter() - begun < budget and len(times) < MAX_RUNS):
        times.append(measure())
    return Timing(statistics.median(times) * 1e6, len(times))
