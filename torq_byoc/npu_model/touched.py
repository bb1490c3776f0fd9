"""Bytes that a job touches: their spans at once, exactly which ones when somebody asks.

Most jobs keep apart by far, and to their buffers, as the spans of their operands show.  Only where spans cannot tell
the exact bytes are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec
import numpy as np

from torq_byoc.npu_model import intervals

Span = tuple[int, int]
"""First byte, and the one after the last."""
_FEW = 8
"""Intervals up to which they are looked through one by one."""


class Placed(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A set of bytes, not empty, that was worked out at one address and stands at another.

    Attributes:
        runs: the set as an interval array, where it was worked out.
        low, high: first byte, and the one after the last, where it is.
        distance: from there to here.
    """

    runs: np.ndarray
    low: int
    high: int
    distance: int = 0

    @classmethod
    def of(cls, runs: np.ndarray) -> Placed:
        """A set where it is."""
        return cls(runs, int(runs[0, 0]), int(runs[-1, 1]))

    def moved(self, distance: int) -> Placed:
        """The set so many bytes further on."""
        return Placed(self.runs, self.low + distance, self.high + distance, self.distance + distance)

    @property
    def exact(self) -> np.ndarray:
        """The set as an interval array."""
        return self.runs + self.distance

    @property
    def is_whole(self) -> bool:
        """Whether every byte of the span belongs to it."""
        return len(self.runs) == 1

    def first_common(self, other: Placed) -> Span | None:
        """The first interval of bytes that are in both sets, or None."""
        if self.low >= other.high or other.low >= self.high:
            return None
        return intervals.first_common(self.exact, other.exact)


class Touched(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A set of bytes of one memory.

    Attributes:
        spans: around its parts, none of them empty; they may overlap.
        parts: the bytes inside each span; empty where they are all of the span.
    """

    spans: tuple[Span, ...] = ()
    parts: tuple[Placed, ...] = ()

    @classmethod
    def of(cls, sets: Iterable[np.ndarray]) -> Touched:
        """The union of interval arrays."""
        return cls.joined([Placed.of(part) for part in sets if len(part)])

    @classmethod
    def joined(cls, parts: Sequence[Placed]) -> Touched:
        """The union of sets."""
        return cls(tuple([(part.low, part.high) for part in parts]), tuple(parts))

    @classmethod
    def all_of(cls, start: int, end: int) -> Touched:
        """The bytes start..end-1."""
        return cls(((start, end),)) if end > start else NOTHING

    @cached_property
    def exact(self) -> np.ndarray:
        """The set as one interval array."""
        if self.parts:
            return intervals.union([part.exact for part in self.parts])
        return intervals.union([intervals.interval(*span) for span in self.spans])

    def first_common(self, other: Touched) -> Span | None:
        """The first interval of bytes that are in both sets, or None."""
        return intervals.first_common(self.exact, other.exact) if spans_meet(self.spans, other.spans) else None

    def first_outside(self, spans: Sequence[Span]) -> Span | None:
        """The first interval of the set that is not wholly in the union of some spans, or None."""
        for number, span in enumerate(self.spans):
            if not _is_inside(span, spans) and not (self.parts and _are_inside(self.parts[number], spans)):
                around = intervals.union([intervals.interval(*around) for around in spans])
                return intervals.first_outside(self.exact, around)
        return None


def _is_inside(span: Span, spans: Sequence[Span]) -> bool:
    """Whether one of some spans holds all of another one."""
    start, end = span
    return any([low <= start and end <= high for low, high in spans])


def _are_inside(part: Placed, spans: Sequence[Span]) -> bool:
    """Whether each interval of a set of few lies in one of some spans: a walk may step from buffer to buffer."""
    return len(part.runs) <= _FEW and all([_is_inside((start, end), spans) for start, end in part.exact.tolist()])


def spans_meet(left: Sequence[Span], right: Sequence[Span]) -> bool:
    """Whether some span of one list shares a byte with one of the other."""
    for start, end in left:
        for low, high in right:
            if start < high and low < end:
                return True
    return False


NOTHING = Touched()
"""The empty set."""
