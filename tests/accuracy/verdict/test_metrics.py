"""Figures gathered sample by sample are those of all samples together."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.accuracy.verdict.metrics import Comparison
from torq_byoc.quantize.evaluation.distance import MOST_SQNR


def _filled(wanted: np.ndarray, found: np.ndarray, axis: int = 1) -> Comparison:
    """A comparison of samples along the first axis."""
    comparison = Comparison()
    for one, other in zip(wanted, found, strict=True):
        comparison.update(one[None], other[None], axis)
    return comparison


def _pair(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Five samples of six channels with an outlier channel, and the same with noise."""
    rng = np.random.default_rng(seed)
    wanted = rng.normal(0, 1, (5, 6, 3, 1)) * np.array([1, 100, 0.01, 1, 1, 1]).reshape(1, 6, 1, 1)
    return wanted, wanted + rng.normal(0, 0.1, wanted.shape)


def test_figures_of_all_samples():
    wanted, found = _pair()
    figures = _filled(wanted, found).figures()
    error = found - wanted
    assert figures.sqnr == pytest.approx(10 * np.log10((wanted**2).sum() / (error**2).sum()))
    assert figures.cosine == pytest.approx((wanted * found).sum() / np.linalg.norm(wanted) / np.linalg.norm(found))
    assert figures.max_error == pytest.approx(np.abs(error).max())
    assert figures.mean_error == pytest.approx(np.abs(error).mean())
    assert (figures.peak, figures.elements) == (pytest.approx(np.abs(wanted).max()), 90)


@pytest.mark.parametrize("axis", [1, 2])
def test_figures_of_channels(axis):
    wanted, found = _pair()
    others = tuple(i for i in range(4) if i != axis)
    expected = 10 * np.log10((wanted**2).sum(axis=others) / ((found - wanted) ** 2).sum(axis=others))
    np.testing.assert_allclose(_filled(wanted, found, axis).channel_sqnr(), expected)


def test_a_lost_channel_is_seen_however_small():
    wanted, found = _pair()
    found[:, 2] = 0.125
    assert _filled(wanted, found).dead_channels() == (2,)
    assert _filled(wanted, found).figures().cosine > 0.9999


def test_a_channel_that_says_nothing_is_not_lost():
    wanted, found = _pair()
    wanted[:, 4] = 5 + 1e-6 * wanted[:, 4]
    found[:, 4] = 5
    assert _filled(wanted, found).dead_channels() == ()


def test_a_channel_that_moves_from_sample_to_sample_is_not_lost():
    wanted = np.array([1.0, 2.0]).reshape(2, 1, 1)
    assert _filled(wanted, wanted).dead_channels() == ()
    assert _filled(wanted, np.ones_like(wanted)).dead_channels() == (0,)


def test_agreement_counts_places_with_the_same_largest_channel():
    wanted = np.array([[[3, 0], [1, 5], [0, 4]]], float)
    found = np.array([[[2, 0], [1, 5], [0, 6]]], float)
    assert _filled(wanted, found).agreement() == 0.5
    assert _filled(wanted[:, :1], found[:, :1]).agreement() is None


@pytest.mark.parametrize(
    ("wanted", "found", "sqnr", "cosine"),
    [
        ([1.0, 2.0], [1.0, 2.0], MOST_SQNR, 1.0),
        ([0.0, 0.0], [0.0, 1.0], -MOST_SQNR, 0.0),
        ([0.0, 0.0], [0.0, 0.0], MOST_SQNR, 1.0),
        ([1.0, 1.0], [np.nan, 1.0], -MOST_SQNR, 0.0),
        ([-np.inf, 1.0], [-np.inf, 1.0], MOST_SQNR, 1.0),
        ([-np.inf, 1.0], [-1e9, 1.0], -MOST_SQNR, 0.0),
    ],
)
def test_extreme_values(wanted, found, sqnr, cosine):
    figures = _filled(np.array([wanted]), np.array([found]), 0).figures()
    assert (figures.sqnr, figures.cosine) == (sqnr, pytest.approx(cosine))


def test_nothing_compared():
    comparison = Comparison()
    comparison.update(np.zeros((1, 0)), np.zeros((1, 0)), 1)
    assert (comparison.figures().sqnr, comparison.figures().elements) == (MOST_SQNR, 0)
    assert comparison.dead_channels() == ()
