"""Observers see every value, whatever the batches."""

import numpy as np
import pytest

from torq_byoc.quantize.ranges import OBSERVERS, MinMax, Percentile, Range


def test_minmax_is_exact_over_batches() -> None:
    observer = MinMax()
    for values in ([0.5, 2.0], [-3.25, 1.0], [0.0]):
        observer.update(np.array(values, np.float32))
    assert observer.range() == Range(-3.25, 2.0)


@pytest.mark.parametrize("name", sorted(OBSERVERS))
def test_nothing_seen_is_an_empty_range(name: str) -> None:
    assert OBSERVERS[name]().range() == Range(0.0, 0.0)


def test_percentile_drops_a_lone_outlier() -> None:
    rng = np.random.default_rng(0)
    observer = Percentile(tail=1e-3)
    observer.update(rng.uniform(-1, 1, 100_000))
    observer.update(np.array([500.0]))
    found = observer.range()
    assert -1.6 <= found.low <= -0.9
    assert 0.9 <= found.high <= 1.6


def test_percentile_without_tail_keeps_the_extremes() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_t(2.5, 50_000)
    observer = Percentile(tail=0.0)
    for part in np.array_split(values, 7):
        observer.update(part)
    found = observer.range()
    assert found.low == pytest.approx(values.min(), rel=1e-3)
    assert found.high == pytest.approx(values.max(), rel=1e-3)
