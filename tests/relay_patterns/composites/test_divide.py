"""Division against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, code_distance, run, ulps
from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import divide
from torq_byoc.relay_patterns.quant_params import QuantParams

INT8, UINT8 = DType.INT8, DType.UINT8


@pytest.mark.parametrize(
    ("numerator", "divisor"),
    [
        (QuantParams(0.1, 3, INT8), QuantParams(0.05, -100, INT8)),
        (QuantParams(0.02, -128, INT8), QuantParams(0.3, 0, INT8)),
        (QuantParams(0.5, 255, UINT8), QuantParams(0.1, 0, UINT8)),
    ],
)
def test_every_pair_of_codes_is_within_one_code(numerator: QuantParams, divisor: QuantParams):
    x = np.arange(*np.add(numerator.dtype.integer_range, (0, 1))).astype(numerator.dtype.numpy)[None, :]
    y = np.arange(*np.add(divisor.dtype.integer_range, (0, 1))).astype(divisor.dtype.numpy)[:, None]
    counts = y.astype(np.float64) - divisor.zero_point
    real = numerator.dequantize(x) / (np.where(counts == 0, 1.0, counts) * divisor.scale)
    for scale in (0.01, 0.2, 2.0):
        out = QuantParams(scale, 5, INT8)
        actual = run([x, y], [numerator, divisor], lambda b, n, d, out=out: divide.lower(b, n, d, out, "node"))
        assert code_distance(actual, out.quantize(real)) <= 1


def test_bf16_with_broadcast():
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 9, (4, 1, 6)).astype(BF16), (rng.normal(0, 2, (5, 1)) + 0.01).astype(BF16)
    actual = run([x, y], [None, None], lambda b, n, d: divide.lower(b, n, d, None, "node"))
    assert actual.shape == (4, 5, 6)
    assert ulps(actual, x.astype(np.float64) / y.astype(np.float64)) <= 1.6


def test_wide_integers_are_refused():
    builder = GraphBuilder("test")
    x = builder.input("x", (4,), INT8, 0.1)
    y = builder.input("y", (4,), DType.INT16, 0.1)
    with pytest.raises(UnsupportedOpError, match="Div_2"):
        divide.lower(builder, x, y, QuantParams(0.1, 0, INT8), "Div_2")
