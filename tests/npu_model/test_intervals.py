"""Sets of bytes applied to arrays with an element a byte."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.npu_model import intervals


def _spread(count: int) -> np.ndarray:
    """Two bytes of every three, from 5 on."""
    return intervals.spread(intervals.interval(5, 7), [(count, 3)])


@pytest.mark.parametrize("count", [1, 4, 600])
def test_assign_and_select_touch_the_members_alone(count):
    memory = np.zeros(5 + 3 * count + 2, np.int32)
    intervals.assign(memory, _spread(count), 7)
    expected = [
        7 if position >= 5 and (position - 5) % 3 < 2 and position < 5 + 3 * count else 0
        for position in range(memory.size)
    ]
    assert memory.tolist() == expected
    numbered = np.arange(memory.size)
    assert intervals.select(numbered, _spread(count)).tolist() == [p for p, value in enumerate(expected) if value]


def test_assign_where_neither_lengths_nor_distances_are_equal():
    touched = np.concatenate([_spread(100), [[400, 407], [410, 411]]])
    memory = np.zeros(420, np.uint8)
    intervals.assign(memory, touched, 7)
    assert set(np.flatnonzero(memory).tolist()) == {byte for run in touched.tolist() for byte in range(*run)}


def test_the_empty_set_selects_nothing():
    memory = np.arange(4)
    assert intervals.select(memory, intervals.EMPTY).size == 0
    intervals.assign(memory, intervals.EMPTY, 9)
    assert memory.tolist() == [0, 1, 2, 3]
