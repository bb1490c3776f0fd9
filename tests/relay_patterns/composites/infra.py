"""Builds a graph around one composite, runs it in the machine's arithmetic, and on the simulated slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from tests.kernels import infra_elementwise
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import Region, kernel_for
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.legalize import legalize
from torq_byoc.relay_patterns.quant_params import QuantParams

BF16 = ml_dtypes.bfloat16
CONFIG = NpuConfig()
ALIASES = ("reshape", "bitcast")
FLOAT_SUMS = ("reduce", "matmul", "sumpool")
"""Operators whose float results may differ by the order of the sum."""

Lower = Callable[..., str]


def build(shapes: Sequence[tuple[int, ...]], quants: Sequence[QuantParams | None], lower: Lower) -> OpGraph:
    """A legal graph with one input a shape (no quantization: bf16); its output is ``lower(builder, *names)``."""
    builder = GraphBuilder("test")
    names = []
    for index, (shape, quant) in enumerate(zip(shapes, quants, strict=True)):
        if quant is None:
            names.append(builder.input(f"x{index}", shape, DType.BF16))
        else:
            names.append(builder.input(f"x{index}", shape, quant.dtype, quant.scale, quant.zero_point))
    builder.output(lower(builder, *names))
    graph = legalize(builder.finish(), CONFIG)
    for node in graph.nodes:
        reason = kernel_for(node.op).unsupported(graph, node, CONFIG)
        assert reason is None, f"{node.op} {node.name}: {reason}"
    return graph


def run(arrays: Sequence[np.ndarray], quants: Sequence[QuantParams | None], lower: Lower) -> np.ndarray:
    """The composite's result on arrays, by the whole-tensor reference."""
    graph = build([array.shape for array in arrays], quants, lower)
    with np.errstate(invalid="ignore", over="ignore"):
        values = evaluate(graph, {f"x{index}": array for index, array in enumerate(arrays)})
    return values[graph.outputs[0]]


def check_on_slices(arrays: Sequence[np.ndarray], quants: Sequence[QuantParams | None], lower: Lower) -> None:
    """Every node's slice tasks give the reference: integers exactly, float sums within one bf16 unit."""
    graph = build([array.shape for array in arrays], quants, lower)
    values = evaluate(graph, {f"x{index}": array for index, array in enumerate(arrays)})
    for node in graph.nodes:
        if node.op in ALIASES:
            continue
        expected = values[node.output]
        actual = infra_elementwise.run(graph, node, values, [[Region.whole(expected.shape)]])
        if node.op in FLOAT_SUMS and not np.issubdtype(expected.dtype, np.integer):
            np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=2.0**-7)
        else:
            infra_elementwise.assert_same(actual, expected)


def code_distance(actual: np.ndarray, expected: np.ndarray) -> int:
    """Largest difference of two arrays of codes."""
    assert actual.dtype == expected.dtype
    return int(np.abs(actual.astype(np.int64) - expected.astype(np.int64)).max(initial=0))


def all_codes(dtype: DType) -> np.ndarray:
    """Every value of an integer type, ascending."""
    low, high = dtype.integer_range
    return np.arange(low, high + 1).astype(dtype.numpy)


def normal_bf16(low: float = 2.0**-126, high: float = 3.4e38) -> np.ndarray:
    """Every bf16 of either sign with low <= magnitude <= high, and zero."""
    values = np.arange(1 << 16).astype(np.uint16).view(BF16)
    with np.errstate(invalid="ignore"):
        real = values.astype(np.float64)
    return values[(np.abs(real) >= low) & (np.abs(real) <= high) | (real == 0)]


def ulps(actual: np.ndarray, exact: np.ndarray, smallest: float = 2.0**-126) -> float:
    """Largest error in bf16 units in the last place of the exact value (of ``smallest`` below that)."""
    magnitude = np.maximum(np.abs(exact), smallest)
    return float(np.max(np.abs(actual.astype(np.float64) - exact) / np.exp2(np.floor(np.log2(magnitude)) - 7)))


def cosine(actual: np.ndarray, exact: np.ndarray) -> float:
    """Cosine similarity of two arrays as vectors."""
    a, b = actual.astype(np.float64).ravel(), exact.ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))
