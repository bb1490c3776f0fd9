"""Percentiles from counts against ``np.quantile`` of the values themselves."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.quantize.observers import Statistics
from torq_byoc.quantize.observers.percentile import percentile

RNG = np.random.default_rng(5)
DATA = {
    "normal": RNG.normal(0.3, 1, 50_000),
    "heavy tail": RNG.standard_t(2.5, 50_000),
    "one-sided": np.maximum(RNG.normal(-0.5, 1, 50_000), 0.0),
    "negative": -RNG.exponential(0.01, 50_000),
    "far from zero": RNG.uniform(7.0, 9.0, 50_000),
}


@pytest.mark.parametrize("tail", [0.0, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("name", DATA)
def test_ends_are_quantiles_to_a_bin(name: str, tail: float) -> None:
    values = DATA[name].astype(np.float32)
    statistics = Statistics()
    for part in np.array_split(values, 7):
        statistics.update(part)
    assert statistics.histogram is not None
    width = statistics.histogram.width
    low, high = np.quantile(values, tail, method="higher"), np.quantile(values, 1 - tail, method="lower")
    found = percentile(statistics, tail)
    assert found.low == pytest.approx(low, abs=width)
    assert found.high == pytest.approx(high, abs=width)
    assert found.low >= values.min()
    assert found.high <= values.max()


def test_a_lone_outlier_is_left_out() -> None:
    statistics = Statistics()
    statistics.update(RNG.uniform(-1, 1, 100_000))
    statistics.update(np.array([500.0]))
    found = percentile(statistics)
    assert -1.2 <= found.low <= -0.99
    assert 0.99 <= found.high <= 1.2
