"""ACT passes found for given results of all codes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites.code_lines import Bands, find_line, line_pass, widest_lines

CODES = np.arange(-128, 128)


def line(slope: Fraction, offset: Fraction, low: int, high: int) -> np.ndarray:
    return np.array([min(max(round(slope * int(code) + offset), low), high) for code in CODES], np.int64)


def by_fractions(found, code: int) -> int:
    scaled = Fraction((code + int(found.bias[0])) * int(found.scale[0]), 1 << found.shift)
    return int(min(max(round(scaled) + found.zero_point, found.clip_min), found.clip_max))


@pytest.mark.parametrize("slope", [Fraction(1, 3), Fraction(-7, 11), Fraction(29, 4), Fraction(0), Fraction(1), 300])
@pytest.mark.parametrize("offset", [Fraction(2, 7), Fraction(-613, 10), Fraction(1001, 10)])
@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-3, 90), (0, 1)])
def test_a_line_is_found_again(slope, offset, low, high):
    wanted = line(Fraction(slope), offset, low, high)
    found = find_line(CODES, wanted, DType.INT8)
    assert found is not None
    assert [by_fractions(found, int(code)) for code in CODES] == wanted.tolist()


@pytest.mark.parametrize("code", [0, 100, 255])
def test_one_code_beside_the_line_is_too_much(code):
    wanted = line(Fraction(2, 5), Fraction(1, 3), -128, 127)
    wanted[code] += 2
    assert find_line(CODES, wanted, DType.INT8) is None


def test_results_that_rise_and_fall_are_no_line():
    assert find_line(CODES, np.abs(CODES) - 64, DType.INT8) is None


def test_the_widest_gap_by_search():
    """Against a grid of slopes and the best offset for each."""
    rng = np.random.default_rng(3)
    codes = np.arange(-20, 21).astype(np.float64)
    middle = np.rint(0.77 * codes + 3)
    low, high = middle - rng.integers(0, 4, codes.size), middle + rng.integers(0, 4, codes.size)
    bands = Bands.of(codes, low[None], high[None])
    (gap,) = widest_lines(bands).gap
    below, above = (edge[0] for edge in bands.edges())
    grid = [float((above - s * codes).min() - (below - s * codes).max()) for s in np.linspace(0.5, 1.1, 6001)]
    assert gap > 0
    assert max(grid) <= gap + 1e-9 <= max(grid) + 1e-2


def bands_about(slope: float, offset: float) -> Bands:
    """Room of one code about a line, without a clip that it would reach."""
    middle = slope * CODES + offset
    low, high = np.ceil(middle - 1)[None], np.floor(middle + 1)[None]
    return Bands(CODES.astype(np.float64), low, high, low.min(axis=1) - 9, high.max(axis=1) + 9)


@pytest.mark.parametrize(("slope", "offset"), [(506.64, 40000.25), (-3.0, 0.3), (0.01, -90.5)])
def test_bias_and_zero_point_meet_the_offset(slope, offset):
    found = line_pass(bands_about(slope, offset), slope, 0.0)
    assert found is not None and abs(found.zero_point) < 1 << 15
    for code in CODES:
        assert abs(by_fractions(found, int(code)) - (slope * code + offset)) <= 1.5


def test_an_offset_that_neither_can_hold():
    assert line_pass(bands_about(0.0, 40000.25), 0.0, 0.0) is None
