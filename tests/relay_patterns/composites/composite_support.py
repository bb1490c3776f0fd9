"""Builds a graph around one composite and runs it in the machine's arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.quant_params import QuantParams

BF16 = ml_dtypes.bfloat16


def build(
    shapes: list[tuple[int, ...]], quants: list[QuantParams | None], lower: Callable[..., str]
) -> OpGraph:
    """A graph with one input a shape (None: bf16), whose output is what ``lower(builder, *names)`` returns."""
    builder = GraphBuilder("test")
    names = []
    for index, (shape, quant) in enumerate(zip(shapes, quants, strict=True)):
        if quant is None:
            names.append(builder.input(f"x{index}", shape, DType.BF16))
        else:
            names.append(builder.input(f"x{index}", shape, quant.dtype, quant.scale, quant.zero_point))
    builder.output(lower(builder, *names))
    graph = builder.finish()
    for node in graph.nodes:
        assert kernel_for(node.op).unsupported(graph, node, NpuConfig()) is None, node
    return graph


def run(
    arrays: list[np.ndarray], quants: list[QuantParams | None], lower: Callable[..., str]
) -> np.ndarray:
    """The output of ``build``'s graph on arrays."""
    graph = build([array.shape for array in arrays], quants, lower)
    values = evaluate(graph, {f"x{index}": array for index, array in enumerate(arrays)})
    return values[graph.outputs[0]]


def all_codes(dtype: DType) -> np.ndarray:
    """Every value of an integer type, ascending."""
    low, high = dtype.integer_range
    return np.arange(low, high + 1).astype(dtype.numpy)


def all_normal_bf16() -> np.ndarray:
    """Every finite bf16 that is zero or normal."""
    values = np.arange(1 << 16).astype(np.uint16).view(BF16)
    with np.errstate(invalid="ignore"):
        real = values.astype(np.float64)
    return values[np.isfinite(real) & ((np.abs(real) >= 2.0**-126) | (real == 0))]


def ulp(real: np.ndarray) -> np.ndarray:
    """Distance of neighbouring bf16 numbers at real values."""
    magnitude = np.maximum(np.abs(real), 2.0**-126)
    return np.exp2(np.floor(np.log2(magnitude)) - 7)
