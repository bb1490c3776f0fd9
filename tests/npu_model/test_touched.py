"""Sets of bytes that know their spans: the same answers as sets of numbers, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.touched import NOTHING, Touched


def random_parts(rng: np.random.Generator) -> list[np.ndarray]:
    """Interval arrays, some of them empty; they may overlap one another."""
    parts = []
    for _ in range(rng.integers(0, 4)):
        starts = rng.integers(0, 60, rng.integers(0, 4))
        parts.append(intervals.merge(starts, starts + rng.integers(1, 6, starts.size)))
    return parts


def members(array: np.ndarray) -> set[int]:
    return {byte for start, end in array.tolist() for byte in range(start, end)}


@pytest.mark.parametrize("seed", range(200))
def test_answers_are_those_of_the_bytes_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mine, theirs = random_parts(rng), random_parts(rng)
    left, right = Touched.of(mine), Touched.of(theirs)
    own = set().union(*map(members, mine))
    shared = own & set().union(*map(members, theirs))
    assert members(left.exact) == own
    assert (left.first_common(right) or (None, None))[0] == min(shared, default=None)
    spans = [
        (low, low + int(size))
        for low, size in zip(rng.integers(0, 60, 3).tolist(), rng.integers(0, 30, 3), strict=True)
    ]
    stray = own - {byte for low, high in spans for byte in range(low, high)}
    outside = left.first_outside(spans)
    assert (outside is not None) == bool(stray)
    assert outside is None or outside[0] <= min(stray) < outside[1]


def test_spans_that_cross_where_no_byte_is_shared() -> None:
    combs = [Touched.of([np.array([[start, start + 2], [start + 8, start + 10]])]) for start in (100, 104, 108)]
    assert combs[0].first_common(combs[1]) is None
    assert combs[0].first_common(combs[2]) == (108, 110)


def test_a_span_may_lie_in_two_buffers_that_touch() -> None:
    assert Touched.all_of(10, 30).first_outside([(0, 20), (20, 40)]) is None
    assert Touched.all_of(10, 30).first_outside([(0, 20), (21, 40)]) == (10, 30)


def test_nothing() -> None:
    assert Touched.all_of(7, 7) is NOTHING
    assert NOTHING.exact.tolist() == []
    assert NOTHING.first_common(Touched.all_of(0, 9)) is None
    assert NOTHING.first_outside([]) is None
