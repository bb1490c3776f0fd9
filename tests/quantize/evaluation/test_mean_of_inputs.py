"""Mean over tensors of unlike shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantize.models import parsed
from torq_byoc.quantize.evaluation.evaluator import Evaluator


@pytest.mark.parametrize("operands", ["x, k", "k, x", "k, x, k"])
def test_every_input_is_widened(operands):
    k = np.array([1.0, -2.0, 4.0, 0.5], np.float32)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    model = parsed(f"y = Mean({operands})", "float[2,4] x", constants={"k": k})
    total = sum({"x": x, "k": k}[name] for name in operands.split(", "))
    found = Evaluator(model).outputs({"x": x})["y"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, total / (operands.count(",") + 1), rtol=1e-6)
