"""Pipelines of transfers in, slices and transfers out, walked step by step."""

from __future__ import annotations

from collections.abc import Sequence


def walk(loads: Sequence[float], works: Sequence[float], stores: Sequence[float], early: float = 0.0) -> float:
    """When the last of the three engines is idle, if each runs its steps in order and none waits for anything else.

    Args:
        loads, works, stores: cycles of every step.
        early: how long before the first work could begin the loads began.
    """
    loaded, worked, stored = -early, 0.0, 0.0
    for load, work, store in zip(loads, works, stores, strict=True):
        loaded += load
        worked = max(worked, loaded) + work
        stored = max(stored, worked) + store
    return stored
