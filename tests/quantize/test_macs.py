"""Multiply-accumulates of layers, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantize.models import parsed
from torq_byoc.quantize.macs import layer_macs


@pytest.mark.parametrize(
    ("body", "inputs", "weights", "macs"),
    [
        ("y = Conv<strides=[2,1], pads=[1,0,0,1]>(x, w)", "float[1,4,9,7] x", (6, 4, 3, 2), 4 * 7 * 6 * 4 * 3 * 2),
        ("y = Conv<group=4>(x, w)", "float[2,4,5,5] x", (8, 1, 3, 3), 2 * 3 * 3 * 8 * 9),
        ("y = ConvTranspose<strides=[2,2]>(x, w)", "float[1,4,5,3] x", (4, 6, 2, 2), 5 * 3 * 4 * 6 * 4),
        ("y = MatMul(x, w)", "float[1,5,12] x", (12, 7), 5 * 12 * 7),
        ("y = Gemm(x, w)", "float[3,12] x", (12, 7), 3 * 12 * 7),
        ("y = MatMul(x, x)", "float[6,6] x", (1,), 0),
        ("y = Relu(x)", "float[6,6] x", (1,), 0),
    ],
)
def test_a_product_for_every_weight_at_every_place(body: str, inputs: str, weights: tuple, macs: int) -> None:
    model = parsed(body, inputs, constants={"w": np.ones(weights)} if "w" in body else {})
    assert sum(layer_macs(model).values()) == macs
