"""Division against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, all_codes, check_on_slices, code_distance, run, ulps
from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import divide
from torq_byoc.relay_patterns.quant_params import QuantParams

INT8, UINT8, INT16 = DType.INT8, DType.UINT8, DType.INT16


@pytest.mark.parametrize(
    ("numerator", "divisor"),
    [
        (QuantParams(0.1, 3, INT8), QuantParams(0.05, -100, INT8)),
        (QuantParams(0.02, -128, INT8), QuantParams(0.3, 0, INT8)),
        (QuantParams(0.5, 255, UINT8), QuantParams(0.1, 0, UINT8)),
    ],
)
def test_every_pair_of_codes_is_within_one_code(numerator: QuantParams, divisor: QuantParams):
    x, y = all_codes(numerator.dtype)[None, :], all_codes(divisor.dtype)[:, None]
    for scale in (1e-4, 0.01, 0.2, 2.0, 300.0):
        for out in (QuantParams(scale, 5, INT8), QuantParams(scale, 255, UINT8), QuantParams(scale, 0, INT16)):
            actual = run([x, y], [numerator, divisor], lambda b, n, d, out=out: divide.lower(b, n, d, out, "node"))
            wanted = _quotients(x, y, numerator, divisor, out)
            assert code_distance(actual, wanted) <= 1
            zero = np.broadcast_to(y == divisor.zero_point, wanted.shape)
            np.testing.assert_array_equal(actual[zero], wanted[zero])


def _quotients(
    x: np.ndarray, y: np.ndarray, numerator: QuantParams, divisor: QuantParams, out: QuantParams
) -> np.ndarray:
    """What QDQ semantics give: infinity saturates; 0 / 0, for which there is no code, is the code of zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        real = numerator.dequantize(x) / divisor.dequantize(y)
    return out.quantize(np.nan_to_num(real, nan=0.0, posinf=np.inf, neginf=-np.inf))


def test_division_by_zero_takes_the_end_of_the_codes_on_slices_too():
    numerator, divisor = QuantParams(1.0, 1, INT8), QuantParams(1.0, -3, INT8)
    out = QuantParams(100.0, -20, INT8)  # one code over one code is a hundredth of a step
    x = np.array([1, 2, 0, 127, -128], np.int8)
    zero = np.full(5, -3, np.int8)
    actual = run([x, zero], [numerator, divisor], lambda b, n, d: divide.lower(b, n, d, out, "node"))
    assert actual.tolist() == [-20, 127, -128, 127, -128]
    check_on_slices([x, zero], [numerator, divisor], lambda b, n, d: divide.lower(b, n, d, out, "node"))


def test_bf16_with_broadcast():
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 9, (4, 1, 6)).astype(BF16), (rng.normal(0, 2, (5, 1)) + 0.01).astype(BF16)
    actual = run([x, y], [None, None], lambda b, n, d: divide.lower(b, n, d, None, "node"))
    assert actual.shape == (4, 5, 6)
    assert ulps(actual, x.astype(np.float64) / y.astype(np.float64)) <= 1.6


def test_wide_integers_are_refused():
    builder = GraphBuilder("test")
    x = builder.input("x", (4,), INT8, 0.1)
    y = builder.input("y", (4,), INT16, 0.1)
    with pytest.raises(UnsupportedOpError, match="Div_2"):
        divide.lower(builder, x, y, QuantParams(0.1, 0, INT8), "Div_2")
