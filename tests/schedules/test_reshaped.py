"""Boxes seen under another shape, against the elements themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torq_byoc.kernels.kernel import Region
from torq_byoc.schedules.fusion.reshaped import reshaped

SHAPES = {
    12: [(12,), (1, 12), (12, 1), (3, 4), (2, 6), (2, 2, 3), (1, 3, 1, 4), (2, 3, 2), (6, 1, 2, 1)],
    24: [(2, 3, 4), (6, 4), (2, 12), (24,), (1, 4, 6), (4, 2, 3), (2, 1, 3, 4), (3, 8)],
    60: [(3, 4, 5), (12, 5), (3, 20), (5, 12), (1, 3, 20), (15, 4), (60, 1, 1)],
}


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Region, tuple[int, ...], tuple[int, ...]]:
    shapes = draw(st.sampled_from(sorted(SHAPES.values())))
    shape, target = draw(st.sampled_from(shapes)), draw(st.sampled_from(shapes))
    start = tuple(draw(st.integers(0, size - 1)) for size in shape)
    extent = tuple(draw(st.integers(1, size - first)) for size, first in zip(shape, start, strict=True))
    return Region(start, extent), shape, target


def _elements(box: Region, shape: tuple[int, ...]) -> np.ndarray:
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return numbers[tuple(slice(s, s + e) for s, e in zip(box.start, box.extent, strict=True))].reshape(-1)


@given(_cases())
def test_every_element_is_covered_and_equal_sizes_mean_equal_tiles(case: tuple[Region, tuple, tuple]) -> None:
    box, shape, target = case
    found = reshaped(box, shape, target)
    ours, theirs = _elements(box, shape), _elements(found, target)
    assert set(ours) <= set(theirs)
    if len(ours) == len(theirs):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("box", "shape", "target", "expected"),
    [
        (Region((0, 0, 4, 0), (1, 8, 2, 7)), (1, 8, 9, 7), (1, 1, 8, 63), Region((0, 0, 0, 28), (1, 1, 8, 14))),
        (Region((0, 0, 0, 28), (1, 1, 8, 14)), (1, 1, 8, 63), (1, 8, 9, 7), Region((0, 0, 4, 0), (1, 8, 2, 7))),
        (Region((0, 0, 3, 1), (1, 8, 1, 2)), (1, 8, 9, 7), (1, 2, 4, 9, 7), Region((0, 0, 0, 3, 1), (1, 2, 4, 1, 2))),
        (Region((2,), (3,)), (24,), (2, 12), Region((0, 2), (1, 3))),
        (Region((10,), (4,)), (24,), (2, 12), Region((0, 0), (2, 12))),
        (Region((0, 0), (0, 4)), (3, 4), (12,), Region((0,), (0,))),
    ],
)
def test_by_hand(box: Region, shape: tuple[int, ...], target: tuple[int, ...], expected: Region) -> None:
    assert reshaped(box, shape, target) == expected
