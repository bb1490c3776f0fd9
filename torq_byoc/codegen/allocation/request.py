"""What is to be placed, and where it was put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np


class Request(msgspec.Struct, frozen=True, gc=False):
    """A buffer to place: bytes, first and last slot (included) in which it is occupied."""

    size: int
    start: int
    end: int


@dataclass(frozen=True)
class Allocation:
    """Offsets in request order, and the height they reach."""

    offsets: tuple[int, ...]
    height: int


def max_live(requests: Sequence[Request]) -> int:
    """The largest sum of sizes alive in one slot: no allocation can be lower."""
    if not requests:
        return 0
    first = min(request.start for request in requests)
    slots = max(request.end for request in requests) - first + 2
    delta = np.zeros(slots, np.int64)
    for request in requests:
        delta[request.start - first] += request.size
        delta[request.end + 1 - first] -= request.size
    return int(np.cumsum(delta).max())
