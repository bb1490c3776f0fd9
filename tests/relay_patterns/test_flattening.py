"""Transpositions before a flattened dense layer: gone into its weights, to the same values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.flattening import flatten_in_order

RNG = np.random.default_rng(3)


def network(
    shape: tuple[int, ...] = (2, 5, 3, 4),
    perm: tuple[int, ...] = (0, 2, 3, 1),
    *,
    dtype: DType = DType.INT8,
    rows: int = 2,
    constant: bool = True,
    read_twice: bool = False,
) -> OpGraph:
    """A transposition, flattened to so many rows, and a dense layer."""
    builder = GraphBuilder("network")
    x = builder.input("x", shape, dtype)
    swapped = builder.emit("transpose", [x], [shape[axis] for axis in perm], dtype, attrs={"perm": perm})
    inner = int(np.prod(shape)) // rows
    flat = builder.emit("reshape", [swapped], (rows, inner), dtype)
    values = RNG.integers(-128, 128, (inner, 7)).astype(dtype.numpy)
    weights = builder.constant(values, "w") if constant else builder.input("w", (inner, 7), dtype)
    rescale = None if dtype.is_float else Rescale(np.zeros(1, np.int32), np.array([9], np.int32), 13)
    builder.output(builder.emit("matmul", [flat, weights], (rows, 7), dtype, rescale=rescale))
    if read_twice:
        builder.output(builder.emit("act", [flat], (rows, inner), dtype, attrs={"mode": "NEG"}))
    return builder.finish()


@pytest.mark.parametrize("perm", [(0, *rest) for rest in itertools.permutations((1, 2, 3))])
def test_every_order(perm: tuple[int, ...]) -> None:
    graph = network(perm=perm)
    changed = flatten_in_order(graph)
    assert [node.op for node in changed.nodes] == ["reshape", "matmul"]
    feed = {"x": RNG.integers(-128, 128, (2, 5, 3, 4)).astype(np.int8)}
    before, after = (evaluate(g, feed)[g.outputs[0]] for g in (graph, changed))
    assert np.unique(before).size > 5
    np.testing.assert_array_equal(after, before)
    assert set(changed.constants) < set(changed.tensors)


@pytest.mark.parametrize(
    "graph",
    [
        network(perm=(1, 0, 2, 3), rows=5),
        network(rows=6),
        network(dtype=DType.BF16),
        network(constant=False),
        network(read_twice=True),
    ],
    ids=["rows move", "rows are divided", "float sums", "weights are computed", "another reader"],
)
def test_what_stays(graph: OpGraph) -> None:
    assert flatten_in_order(graph).nodes == graph.nodes
