"""A tighter bound for machines with little memory: operators in order, weights at most one LRAM ahead of their use.

The lower bound lets every weight arrive while any operator computes.  A program that runs the operators in the order of
the graph can only load so far ahead as the LRAM holds, so what comes last and has many weights (the classifier behind a
convolutional network) waits for the channel.  Activations take no room and no time here, so nothing can be faster.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

PARTS = 64
"""Parts in which an operator frees its weights: with a share of its products done, no more than that share is free."""


def in_order_cycles(operators: Sequence[tuple[float, float]], capacity: int, rate: float) -> float:
    """Cycles of MAC operators one after the other.

    Part k ends no earlier than its products take after part k - 1, and no earlier than its weights are there; these
    follow those of part k - 1 and wait until what they would not fit beside has been used.

    Args:
        operators: for each its cycles at peak on all slices, and the bytes of weights that nothing before it loads.
        capacity: bytes of LRAM.
        rate: bytes a cycle of the channel.
    """
    ends, used = [0.0], [0.0]
    loaded = 0.0
    for cycles, nbytes in operators:
        for _ in range(PARTS):
            behind = used[-1] + nbytes / PARTS
            waits_for = bisect.bisect_left(used, behind - capacity) - 1
            loaded = max(loaded + nbytes / PARTS / rate, ends[waits_for] if waits_for >= 0 else 0.0)
            ends.append(max(ends[-1] + cycles / PARTS, loaded))
            used.append(behind)
    return ends[-1]
