"""Local response normalization for the float evaluator; that of ``onnx.reference`` walks images, not channels."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun


class LRN(OpRun):
    """x / (bias + alpha / size * sum of squares over ``size`` neighbouring channels) ** beta."""

    op_domain = ""

    def _run(self, x, alpha=1e-4, beta=0.75, bias=1.0, size=None):  # noqa: ANN001, ANN202 - the evaluator's protocol
        before, after = (size - 1) // 2, size // 2
        border = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
        squares = np.pad(np.square(x), border)
        total = sum(squares[:, shift : shift + x.shape[1]] for shift in range(size))
        return ((x / (bias + alpha / size * total) ** beta).astype(x.dtype),)
