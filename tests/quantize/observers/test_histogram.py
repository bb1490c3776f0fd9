"""Counts depend on the values alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torq_byoc.quantize.observers.histogram import BINS, Histogram


def filled(*parts: np.ndarray) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.update(part, float(np.abs(part).max(initial=0.0)))
    return histogram


def test_values_are_in_the_bins_that_their_magnitudes_name() -> None:
    values = np.array([0.0, 1.0, -1.0, 0.3, -0.3, 1e-5, -1e-5, 0.999], np.float32)
    histogram = filled(values)
    assert histogram.span == 1.0
    expected = np.zeros(2 * BINS + 1, np.int64)
    for value in values.tolist():
        expected[BINS + int(value * BINS)] += 1  # int() goes towards zero, from either side
    assert np.array_equal(histogram.counts, expected)


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=9), min_size=1, max_size=6),
    st.permutations(range(6)),
)
@settings(deadline=None)
def test_neither_order_nor_batches_matter(parts: list[list[float]], order: list[int]) -> None:
    arrays = [np.array(part, np.float32) for part in parts]
    together = filled(np.concatenate(arrays))
    shuffled = filled(*(arrays[index] for index in order if index < len(arrays)))
    assert together.span == shuffled.span
    assert np.array_equal(together.counts, shuffled.counts)


@pytest.mark.parametrize("largest", [1e-30, 3e-5, 1.0, 1.5, 2.0, 3e38])
def test_one_sided_values_fill_at_least_half_of_their_side(largest: float) -> None:
    histogram = filled(np.linspace(0, largest, 100_000, dtype=np.float32))
    used = np.flatnonzero(histogram.counts)
    assert used.min() == BINS
    assert histogram.counts.sum() == 100_000
    if largest > 1e-18:  # below, no scale is smaller
        assert used.max() >= BINS + BINS // 2


def test_points_stand_for_the_values_but_zero() -> None:
    values = np.random.default_rng(0).normal(0, 1, 10_000).astype(np.float32)
    histogram = filled(np.concatenate([values, np.zeros(5000, np.float32)]))
    points, counts = histogram.points()
    near_zero = int((np.abs(values) < histogram.width).sum())
    assert counts.sum() == values.size - near_zero
    assert counts @ np.square(points) == pytest.approx(np.square(values.astype(np.float64)).sum(), rel=1e-3)
    assert (np.diff(points) > 0).all()
