"""Room on either side of zero, for values that no sample held."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.quantize.observers import CALIBRATORS, Range, Statistics


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([-3.0, 5.0], -6.0, 10.0),
        ([0.0, 5.0], 0.0, 10.0),
        ([2.0, 5.0], 2.0, 10.0),
        ([-5.0, -2.0], -10.0, -2.0),
        ([0.25], 0.25, 0.5),
    ],
)
def test_ends_lie_twice_as_far_from_zero(values: list[float], low: float, high: float) -> None:
    seen = Statistics(counts=False)
    for value in values:
        seen.update(np.array([value], np.float32))
    assert CALIBRATORS["headroom"](seen) == Range(low, high)


def test_as_many_values_again_keep_to_it_six_times_in_seven() -> None:
    """Values beyond x as rare as 1 / x^2.5; 0.5^2.5 / (1 + 0.5^2.5) = 0.150 of the draws go beyond, +- 0.011."""
    draws = np.random.default_rng(0).pareto(2.5, (2, 1000, 4000)) + 1.0
    largest, later = draws.max(axis=2)
    assert np.mean(later > 2.0 * largest) == pytest.approx(0.150, abs=0.033)
