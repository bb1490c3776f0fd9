"""What a quantizer does to values, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from torq_byoc.accuracy.layers.code_use import CodeCensus
from torq_byoc.accuracy.layers.codes import Codes

INT8 = np.dtype(np.int8)


def _use(values: list[float], codes: Codes, axis: int = 1):
    census = CodeCensus(codes, axis)
    census.update(np.array(values, np.float32).reshape(1, 1, -1))
    return census.use()


def test_values_more_than_a_step_outside_are_saturated():
    codes = Codes("q", 0.5, -128, INT8)  # 0 .. 127.5
    use = _use([0.0, 127.5, 127.9, 128.1, 300.0, -0.4, -0.6, 60.0], codes)
    assert use.saturated == 3 / 8
    assert use.unused == 0


def test_noticeable_values_that_become_zero():
    codes = Codes("q", 1.0, 0, INT8)
    # The root mean square is 0.3: 0.02 is next to nothing there, 0.2 is not.
    use = _use([0.02, 0.2, -0.2, 0.53], codes)
    assert use.zeroed == 2 / 4


def test_zeroed_values_of_a_small_channel_beside_a_large_one():
    codes = Codes("q", 1.0, 0, INT8)
    census = CodeCensus(codes, 1)
    census.update(np.array([[[100.0, -100.0], [0.3, 0.2]]]))
    assert census.use().zeroed == 0.5


def test_unused_codes_over_all_samples():
    codes = Codes("q", 1.0, 0, INT8)
    census = CodeCensus(codes, 0)
    census.update(np.array([0.0, 10.0]))
    assert census.use().unused == 1 - 10 / 255
    census.update(np.array([-41.0, 5.0]))
    assert census.use().unused == 1 - 51 / 255
    assert CodeCensus(codes, 0).use().unused == 0


@pytest.mark.parametrize("value", [0.5, 1.5, 2.5, -0.5, 1e9, -1e9, np.inf, -np.inf])
def test_codes_are_those_of_the_standard(value):
    codes = Codes("q", 1.0, 3, INT8)
    expected = np.clip(np.rint(np.float64(value)) + 3, -128, 127)
    assert codes.quantize(np.array([value]))[0] == expected
