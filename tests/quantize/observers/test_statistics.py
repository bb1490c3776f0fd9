"""Every value counts, whatever the batches; the moving average alone goes from sample to sample."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.quantize.observers import CALIBRATORS, Range, Statistics


def seen(*parts: np.ndarray, counts: bool = True) -> Statistics:
    statistics = Statistics(counts=counts)
    for part in parts:
        statistics.update(np.asarray(part, np.float32))
    return statistics


@pytest.mark.parametrize("method", sorted(CALIBRATORS))
@pytest.mark.parametrize("values", [[], [0.0, 0.0]])
def test_nothing_and_nothing_but_zeros_are_an_empty_range(method: str, values: list[float]) -> None:
    assert CALIBRATORS[method](seen(np.array(values))) == Range(0.0, 0.0)


@pytest.mark.parametrize("method", sorted(CALIBRATORS.keys() - {"headroom"}))
@pytest.mark.parametrize("values", [[2.5], [-2.5], [2.5, 2.5, 0.0], [-1.0, 4.0]])
def test_few_values_are_spanned(method: str, values: list[float]) -> None:
    found = CALIBRATORS[method](seen(np.array(values)))
    low, high = min(*values, 0.0, 0.0), max(*values, 0.0, 0.0)
    assert min(found.low, 0.0) == pytest.approx(low, abs=2e-3)
    assert max(found.high, 0.0) == pytest.approx(high, abs=2e-3)


@pytest.mark.parametrize("method", sorted(set(CALIBRATORS) - {"moving-average"}))
def test_batches_do_not_matter(method: str) -> None:
    values = np.random.default_rng(2).standard_t(3, 9_000) * np.linspace(0.1, 3, 9_000)
    whole = CALIBRATORS[method](seen(values))
    parted = CALIBRATORS[method](seen(*np.array_split(values[::-1], 11)))
    assert whole == parted


def test_extremes_are_exact() -> None:
    assert CALIBRATORS["minmax"](seen([0.5, 2.0], [-3.25, 1.0], [0.0], counts=False)) == Range(-3.25, 2.0)


def test_the_moving_average_follows_slowly() -> None:
    found = CALIBRATORS["moving-average"](seen([-1.0, 1.0], [-1.0, 11.0], [-3.0, 1.0]))
    assert found.low == pytest.approx(0.9 * -1.0 + 0.1 * -3.0)
    assert found.high == pytest.approx(0.9 * (0.9 * 1.0 + 0.1 * 11.0) + 0.1 * 1.0)
