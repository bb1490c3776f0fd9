"""Written models are whole: every name that is read has been made before."""

from __future__ import annotations

import numpy as np
import onnx

import torq_byoc
from tests.quantize.models import parsed
from torq_byoc.quantize import quantize_model

SAMPLES = np.random.default_rng(0).standard_normal((4, 4, 6)).astype(np.float32)
ONE = SAMPLES[:1] / 2


def test_a_float_result_that_an_integer_operator_reads_may_leave_the_model():
    model = parsed("r = Relu(x) c = CumSum(r, a) y = Sigmoid(c)", "float[1,4,6] x", "y, c", {"a": np.array(1)})
    quantized = quantize_model(model, {"x": SAMPLES})
    onnx.checker.check_model(quantized, full_check=True)
    compiled = torq_byoc.compile(model, precision="int8", calibration={"x": SAMPLES})
    found, sums = compiled.run({"x": ONE}), np.cumsum(np.maximum(ONE, 0), axis=1)
    scale = float(SAMPLES.max()) / 127
    assert np.abs(found["c"] - sums).max() <= 4 * scale, "sums of at most four rounded values, not rounded again"
    assert np.abs(found["y"] - 1 / (1 + np.exp(-sums))).max() < 0.05
