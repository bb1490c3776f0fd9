"""Products of a tensor with a clipped line: every code against exact fractions and the real function."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import gated_codes
from torq_byoc.relay_patterns.composites.gated_codes import Gated
from torq_byoc.relay_patterns.quant_params import QuantParams

FUNCTIONS = {
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "leaky relu": lambda x: np.where(x > 0, x, 0.1 * x),
    "steep below": lambda x: np.where(x > 0, 0.3 * x, x),
    "abs": np.abs,
    "minus abs": lambda x: -np.abs(x),
    "square": np.square,
    "thresholded": lambda x: np.where(x > 1, x, 0.0),
    "x times clip(2 - x)": lambda x: x * np.clip(2.0 - x, -0.5, 1.5),
}


def real_results(name: str, source: QuantParams) -> np.ndarray:
    low, high = source.dtype.integer_range
    return FUNCTIONS[name]((np.arange(low, high + 1) - source.zero_point) * source.scale)


def rounded(value: int, r: Rescale) -> int:
    """The rescale on one number, by fractions: half to even, zero point, clip."""
    scaled = Fraction((value + int(r.bias[0])) * int(r.scale[0]), 1 << r.shift)
    return int(min(max(round(scaled) + r.zero_point, r.clip_min), r.clip_max))


def results(form: Gated, source: QuantParams) -> np.ndarray:
    low, high = source.dtype.integer_range
    gates = [rounded(code, form.gate) for code in range(low, high + 1)]
    least, most = form.dtype.integer_range
    assert least <= min(gates) and max(gates) <= most
    products = zip(range(low, high + 1), gates, strict=True)
    return np.array([rounded((code - source.zero_point) * gate, form.product) for code, gate in products])


def correctly_rounded(real: np.ndarray, out: QuantParams) -> np.ndarray:
    return np.clip(np.rint(real / out.scale) + out.zero_point, *out.dtype.integer_range).astype(int)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("dtype", "zero"), [(DType.INT8, -128), (DType.INT8, 127), (DType.INT8, -7), (DType.UINT8, 0), (DType.UINT8, 201)]
)
@pytest.mark.parametrize(("scale", "out_scale", "out_zero"), [(0.0931, 0.0617, -3), (0.0313, 0.0172, 44)])
def test_every_code_is_correctly_rounded_or_next_to_a_tie(name, dtype, zero, scale, out_scale, out_zero):
    source, out = QuantParams(scale, zero, dtype), QuantParams(out_scale, out_zero, DType.INT8)
    real = real_results(name, source)
    form, want = gated_codes.find(real, source, out), correctly_rounded(real, out)
    if form is None:  # nothing is left of it on this side of zero
        assert np.unique(want).size == 1
        return
    got = results(form, source)
    np.testing.assert_array_equal(form.values(np.arange(*source.dtype.integer_range), source, out), got[:-1])
    off = want != got
    codes = np.clip(real / out.scale + out.zero_point, -128, 127)
    assert np.abs(codes - np.floor(codes) - 0.5)[off].max(initial=0.0) <= 0.1
    assert np.abs(want - got).max() <= 1
    assert np.square(got - codes).mean() <= 1.02 * np.square(want - codes).mean()


@pytest.mark.parametrize(("scale", "zero"), [(0.0931, -38), (0.1157, -16), (0.2107, 44), (0.0933, -7), (0.067, 13)])
def test_hard_swishes_over_a_usual_range_take_gates_of_8_bits(scale, zero):
    source = QuantParams(scale, zero, DType.INT8)
    real = real_results("hardswish", source)
    out_scale = (real.max() - real.min()) / 255
    out = QuantParams(out_scale, round(-128 - real.min() / out_scale), DType.INT8)
    form = gated_codes.find(real, source, out)
    assert form is not None and form.dtype is DType.UINT8
    np.testing.assert_array_equal(results(form, source), correctly_rounded(real, out))


@pytest.mark.parametrize("function", [np.tanh, np.cos, lambda x: x / (1 + np.exp(-x)), lambda x: x + 1.0])
def test_other_functions_have_no_such_form(function):
    source, out = QuantParams(0.05, 3, DType.INT8), QuantParams(0.02, 0, DType.INT8)
    assert gated_codes.find(function((np.arange(-128, 128) - 3) * 0.05), source, out) is None


def test_a_form_of_codes_is_exact_or_none():
    source, out = QuantParams(1.0, -5, DType.INT8), QuantParams(1.0, 9, DType.UINT8)
    distance = np.arange(-128, 128) + 5
    wanted = np.clip(np.rint(distance * np.clip(0.0137 * distance + 0.31, 0.0513, 1.2987)) + 9, 0, 255).astype(np.int64)
    form = gated_codes.find_exact(wanted, source, out)
    assert form is not None
    np.testing.assert_array_equal(results(form, source), wanted)
    wanted[160] += 9
    assert gated_codes.find_exact(wanted, source, out) is None


def test_cycles_follow_the_machine():
    source, out = QuantParams(0.0931, -38, DType.INT8), QuantParams(0.0617, -3, DType.INT8)
    form = gated_codes.find(real_results("hardswish", source), source, out)
    assert form is not None
    wide = 8 if form.dtype is DType.INT16 else 16
    assert form.cycles(NpuConfig()) == 1 / 16 + 1 / wide
