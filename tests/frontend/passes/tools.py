"""Preparing a model and saying what must be left of it."""

from __future__ import annotations

import numpy as np
import onnx

from tests.frontend.onnx_tools import assert_same_results, ops
from torq_byoc.frontend import prepare

F32 = np.float32


def checked(model: onnx.ModelProto, expected: list[str], rtol: float = 2e-6, **options) -> onnx.ModelProto:
    """Prepare; the operators are ``expected``, the numbers are unchanged, the result is valid ONNX."""
    result = prepare(model, **options)
    assert ops(result) == expected
    onnx.checker.check_model(result, full_check=True)
    assert_same_results(model, result, rtol)
    return result


def weights(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def i64(*values):
    return np.array(values, np.int64)
