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


class Touched(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A set of bytes of one memory.

    Attributes:
        spans: around its parts, none of them empty; they may overlap.
        parts: the bytes inside each span as interval arrays; empty where they are all of the span.
    """

    spans: tuple[Span, ...] = ()
    parts: tuple[np.ndarray, ...] = ()

    @classmethod
    def of(cls, sets: Iterable[np.ndarray]) -> Touched:
        """The union of interval arrays."""
        parts = tuple([part for part in sets if len(part)])
        return cls(tuple([(int(part[0, 0]), int(part[-1, 1])) for part in parts]), parts)

    @classmethod
    def all_of(cls, start: int, end: int) -> Touched:
        """The bytes start..end-1."""
        return cls(((start, end),)) if end > start else NOTHING

    @cached_property
    def exact(self) -> np.ndarray:
        """The set as one interval array."""
        return intervals.union(self.parts or [intervals.interval(*span) for span in self.spans])

    def first_common(self, other: Touched) -> Span | None:
        """The first interval of bytes that are in both sets, or None."""
        return intervals.first_common(self.exact, other.exact) if spans_meet(self.spans, other.spans) else None

    def first_outside(self, spans: Sequence[Span]) -> Span | None:
        """The first interval of the set that is not wholly in the union of some spans, or None."""
        for start, end in self.spans:
            for low, high in spans:
                if low <= start and end <= high:
                    break
            else:
                around = intervals.union([intervals.interval(*span) for span in spans])
                return intervals.first_outside(self.exact, around)
        return None


def spans_meet(left: Sequence[Span], right: Sequence[Span]) -> bool:
    """Whether some span of one list shares a byte with one of the other."""
    for start, end in left:
        for low, high in right:
            if start < high and low < end:
                return True
    return False


NOTHING = Touched()
"""The empty set."""
