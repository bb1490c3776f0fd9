"""Table construction: exact entries, fitted pieces, and the arithmetic they are judged by."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.npu_model.numerics import table_lookup
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.float_bits import bf16_of_pattern, bf16_pattern, split_bf16


def test_table_values_are_the_machines_look_up():
    rng = np.random.default_rng(0)
    table = rng.integers(-(2**15), 2**15, (512, 2)).astype(np.int16)
    positions = np.arange(-(2**15), 2**15)
    assert np.array_equal(tables.table_values(table).ravel(), table_lookup(positions, table))


def test_straight_line_is_reproduced_to_half_a_unit():
    fitted = tables.fit_table(tables.positions() * 0.731 + 5.25)
    assert fitted.max_error <= 1.0
    assert np.abs(tables.table_values(fitted.table) - (tables.positions() * 0.731 + 5.25)).max() <= fitted.max_error


def test_reported_error_is_the_largest_error():
    targets = 20000 * np.sin(tables.positions() / 3000.0)
    fitted = tables.fit_table(targets)
    assert np.abs(tables.table_values(fitted.table) - targets).max() == pytest.approx(fitted.max_error)
    assert fitted.max_error < 6.0


def test_pieces_may_overshoot_where_targets_saturate():
    targets = tables.positions() * 3.7
    values = np.clip(tables.table_values(tables.fit_table(targets).table), -(2**15), 2**15 - 1)
    error = np.abs(values - np.clip(targets, -(2**15), 2**15 - 1))
    assert error[256:].max() <= 1.0, "a piece that rises past the top"


def test_exact_table_has_an_entry_a_code():
    values = np.arange(-128, 128)[::-1]
    table = tables.exact_table(values)
    index = tables.exact_index(-128)
    codes = np.arange(-128, 128)
    positions = (codes + int(index.bias[0])) * int(index.scale[0])
    assert np.array_equal(table_lookup(positions, table), values)


def test_bf16_patterns_round_like_bf16():
    patterns = np.arange(0, 0x7F80)
    assert np.array_equal(bf16_pattern(bf16_of_pattern(patterns)), patterns)
    assert bf16_pattern(np.array(0.0)) == 0
    assert bf16_pattern(np.array(-1.5)) == 0x3FC0 - 2**15


@pytest.mark.parametrize("value", [1.4426950408889634, -0.1, 0.01, 1 / 6, 0.5, -3.0])
def test_split_keeps_fifteen_bits_and_one_sign(value: float):
    high, low = split_bf16(value)
    assert abs(high + low - value) <= abs(value) * 2.0**-15
    assert high * low >= 0
