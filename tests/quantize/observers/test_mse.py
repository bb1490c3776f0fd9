"""The least squared error, against quantizing the values with every pair of ends of a grid."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.quantize.observers import Range, Statistics
from torq_byoc.quantize.observers.mse import mse
from torq_byoc.quantize.observers.rounding_noise import expected_sqnr
from torq_byoc.quantize.parameters import activation

RNG = np.random.default_rng(11)
DATA = {
    "normal": RNG.normal(0, 1, 20_000),
    "heavy tail": RNG.standard_t(2.5, 20_000),
    "one-sided": np.maximum(RNG.standard_t(3, 20_000), 0.0),
    "short negative side": np.where(RNG.random(20_000) < 0.1, -0.2 * RNG.random(20_000), RNG.exponential(1, 20_000)),
    "lone outlier": np.append(RNG.normal(0, 1, 20_000), 40.0),
}


def error(values: np.ndarray, chosen: Range) -> float:
    """Mean squared error of the values' int8 codes."""
    found = activation(chosen, "int8")
    codes = np.clip(np.rint(values / float(found.scale)) + found.zero_point, -128, 127)
    return float(np.square((codes - found.zero_point) * float(found.scale) - values).mean())


def seen(values: np.ndarray) -> Statistics:
    statistics = Statistics()
    statistics.update(values)
    return statistics


@pytest.mark.parametrize("name", DATA)
def test_no_pair_of_ends_is_better(name: str) -> None:
    values = DATA[name].astype(np.float32).astype(np.float64)
    found = mse(seen(values))
    fractions = np.linspace(0, 1, 41)
    least = min(
        error(values, Range(low, high))
        for low in np.unique(fractions * min(values.min(), 0.0))
        for high in np.unique(fractions * max(values.max(), 0.0))
        if low < high
    )
    assert error(values, found) <= 1.03 * least


def test_noise_is_expected_as_it_turns_out() -> None:
    values = DATA["heavy tail"]
    for chosen in (Range(-20.0, 20.0), Range(-4.0, 6.0), Range(float(values.min()), float(values.max()))):
        measured = 10 * np.log10(np.square(values).mean() / error(values, chosen))
        assert expected_sqnr(seen(values), chosen) == pytest.approx(measured, abs=0.2)


def test_what_lies_close_together_is_not_cut() -> None:
    values = RNG.uniform(-1, 1, 5_000)
    found = mse(seen(values))
    assert found.low == pytest.approx(values.min(), rel=0.02)
    assert found.high == pytest.approx(values.max(), rel=0.02)
