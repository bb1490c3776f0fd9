"""Pools whose border is none of the machine's: their columns in groups, each with the taps that lie on the tensor.

    3 wide, stride 2, one column of border on the right:    columns 0 .. n-2   taps 0 1 2
                                                            column  n-1        taps 0 1

The machine pads a row on both sides or on neither.  A maximum loses nothing when the border is left out, nor does a sum
whose border is 0; so every group is a walk of its own that needs no border.  It takes the cycles of all columns for its
taps, since the lanes run over whole rows, and yet less than copying the tensor into a larger one.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

from msgspec.structs import replace

from torq_byoc.kernels.windows import Axis

MOST_GROUPS = 3
"""Groups that cost less than a copy with a border: all taps, and a border of one column on either side."""


@dataclass(frozen=True)
class ColumnGroup:
    """Output columns [first, end) whose windows have the same taps on the tensor, and the axis of these taps."""

    first: int
    end: int
    axis: Axis


@functools.lru_cache(maxsize=4096)
def column_groups(axis: Axis) -> tuple[ColumnGroup, ...]:
    """The groups, left to right; none when they are too many, a window has no tap, or the stride is folded."""
    if axis.is_folded:
        return ()
    taps = [_taps_inside(axis, column) for column in range(axis.out)]
    runs = [(kept, len(list(columns))) for kept, columns in itertools.groupby(taps)]
    if len(runs) > MOST_GROUPS or not all(len(kept) for kept, _ in runs):
        return ()
    ends = list(itertools.accumulate(count for _, count in runs))
    return tuple(
        ColumnGroup(end - count, end, replace(axis, kernel=len(kept), pad=axis.pad - kept.start * axis.dilation))
        for (kept, count), end in zip(runs, ends, strict=True)
    )


def _taps_inside(axis: Axis, column: int) -> range:
    """Taps of an output column that read the tensor."""
    origin = column * axis.stride - axis.pad
    first = max(0, -(origin // axis.dilation))
    last = min(axis.kernel - 1, (axis.size - 1 - origin) // axis.dilation)
    return range(first, last + 1)
