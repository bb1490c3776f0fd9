"""Softmax of two: each is a function of the difference of both, and the difference of two bytes has 511 values.

    y0 = 1 / (1 + exp(x1 - x0)),  y1 = 1 / (1 + exp(x0 - x1))

One product with a 2 x 2 matrix gives both differences, one table the correctly rounded codes of both results.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import tables
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.composites.integer_activation import quantization
from torq_byoc.relay_patterns.quant_params import QuantParams

_LARGEST = 255
"""Largest difference of two bytes."""


def lower(e: Emitter, x: str, axis: int, out: QuantParams) -> str:
    """Softmax along an axis of two elements; x of one byte with a scale."""
    with np.errstate(over="ignore"):
        shares = 1 / (1 + np.exp(-np.arange(-_LARGEST, _LARGEST + 1) * quantization(e, x).scale))
    table = tables.exact_table(out.quantize(shares))
    return e.table(_differences(e, x, axis), table, tables.exact_index(-_LARGEST), out.dtype, out=out)


def _differences(e: Emitter, x: str, axis: int) -> str:
    """Each element less the other one of its pair, int16."""
    shape = e.info(x).shape
    before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    matrix = np.array([[1, -1], [-1, 1]], np.int8)
    if behind == 1:
        flat = e.reshape(x, (before, 2))
        found = e.emit("matmul", [flat, e.constant(matrix, "difference")], DType.INT16, shape=(before, 2))
    else:
        weights = e.constant(matrix.reshape(2, 2, 1, 1), "difference")
        attrs: dict[str, Any] = {
            "strides": (1, 1),
            "dilations": (1, 1),
            "pads": (0, 0, 0, 0),
            "groups": 1,
            "pad_value": 0,
        }
        planes = (before, 2, 1, behind)
        found = e.emit("conv2d", [e.reshape(x, planes), weights], DType.INT16, shape=planes, **attrs)
    return e.reshape(found, shape)
