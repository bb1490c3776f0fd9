"""Scales to integers: ratios of weights, biases, clips, affine maps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torq_byoc.errors import QuantizationError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.affine import Affine
from torq_byoc.relay_patterns.arithmetic import clip_codes, requantization, weight_pair
from torq_byoc.relay_patterns.quant_params import QuantParams

INT8 = QuantParams(0.05, -28, DType.INT8)
scales = st.floats(1e-6, 10.0)


@given(scales, scales, st.booleans(), st.sampled_from([127, 16383]))
def test_weight_pair_keeps_the_larger_exact_and_the_ratio_close(a, b, negative, limit):
    b = -b if negative else b
    wa, wb, unit = weight_pair(a, b, limit)
    assert abs(wa) <= limit and abs(wb) <= limit and unit > 0
    larger, smaller = ((a, wa), (b, wb)) if a >= abs(b) else ((b, wb), (a, wa))
    assert larger[1] * unit == pytest.approx(larger[0], rel=1e-12)
    assert abs(smaller[1] * unit - smaller[0]) <= max(a, abs(b)) / limit
    assert smaller[1] == 0 or np.sign(smaller[1]) == np.sign(smaller[0])


def test_requantization_names_the_register_that_overflows():
    with pytest.raises(QuantizationError, match="int32"):
        requantization(0.1, 1 << 31, INT8)


def test_relu_becomes_a_clip_at_the_zero_point():
    assert clip_codes(INT8, (0.0, float("inf"))) == (-28, 127)
    assert clip_codes(INT8, (0.0, 6.0)) == (-28, 92)
    assert clip_codes(INT8, (-100.0, 100.0)) == (-128, 127)


def test_one_entry_per_channel_only_when_they_differ_in_number():
    assert requantization(0.5, 3, INT8, axis=1).axis is None
    assert requantization(np.array([0.5, 0.25]), 3, INT8, axis=1).axis == 1


@given(st.lists(st.sampled_from(["scale", "shift", "clip"]), max_size=6), st.integers(0, 1000))
def test_affine_equals_its_steps(steps, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 5, 50)
    line, expected = Affine(), x.copy()
    for step in steps:
        value = float(rng.normal(0, 2)) or 1.0
        if step == "scale":
            line, expected = line.scaled(value), expected * value
        elif step == "shift":
            line, expected = line.shifted(value), expected + value
        else:
            low, high = sorted((value, float(rng.normal(0, 4))))
            line, expected = line.clipped(low, high), np.clip(expected, low, high)
    got = np.clip(line.factor * x + line.offset, *line.bounds)
    np.testing.assert_allclose(got, expected, atol=1e-9, rtol=1e-9)


def test_quantize_rounds_half_to_even_and_saturates():
    params = QuantParams(1.0, 0, DType.INT8)
    assert params.quantize(np.array([0.5, 1.5, -0.5, 400.0, -400.0])).tolist() == [0, 2, 0, 127, -128]
    assert params.dequantize(np.array([3], np.int8)).tolist() == [3.0]
