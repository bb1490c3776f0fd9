"""Transposed graph inputs: loaded in the other order, to the same values, and only where that saves something."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.infra import check_program, convolution
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.input_orders import load_in_order

CONFIG = NpuConfig()
TO_NCHW = (0, 3, 1, 2)


def transposed(builder: GraphBuilder, x: str, perm: tuple[int, ...]) -> str:
    shape = [builder.info(x).shape[axis] for axis in perm]
    return builder.emit("transpose", [x], shape, builder.info(x).dtype, attrs={"perm": perm}, hint="moved")


def network(
    shape: tuple[int, ...], perm: tuple[int, ...] = TO_NCHW, *, kernel: int = 3, stride: int = 1, layers: int = 1
) -> OpGraph:
    """Convolutions of a transposed input."""
    rng, builder = np.random.default_rng(5), GraphBuilder("network")
    y = transposed(builder, builder.input("x", shape, DType.INT8), perm)
    for number in range(layers):
        y = convolution(builder, rng, y, 12, kernel, stride if number == 0 else 1, kernel // 2, f"conv{number}")
    builder.output(y)
    return builder.finish()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(1, 18, 22, 3), (3, 9, 13, 5), (1, 1, 30, 2), (2, 7, 1, 1)])
def test_convolutions_give_the_same(shape: tuple[int, ...], stride: int):
    graph = load_in_order(network(shape, stride=stride, layers=2))
    assert [node.op for node in graph.nodes] == ["reordered", "conv2d", "conv2d"]
    check_program(graph, CONFIG)


@pytest.mark.parametrize("disabled", [(), ("double-buffering",), ("fusion",)])
def test_in_many_tiles(disabled: tuple[str, ...]):
    graph = load_in_order(network((1, 60, 50, 3), kernel=5, stride=2, layers=3))
    check_program(graph, replace(CONFIG, lram_bytes=24 * 1024), disabled)


@pytest.mark.parametrize("perm", itertools.permutations(range(4)))
def test_every_order(perm: tuple[int, ...]):
    check_program(load_in_order(network((2, 5, 6, 7), perm, kernel=1)), CONFIG)


def test_slices_do_nothing_for_it():
    before = network((1, 48, 48, 3))
    jobs = {job.label for job in check_program(before, CONFIG).program.jobs}
    assert "moved" in jobs
    after = check_program(load_in_order(before), CONFIG)
    assert "moved" not in {job.label for job in after.program.jobs}
    assert sum(after.layer_bytes["conv0"].values()) >= 48 * 48 * 3


def test_what_stays_a_transposition():
    builder = GraphBuilder("network")
    x = builder.input("x", (2, 3, 4), DType.INT8)
    several = transposed(builder, x, (0, 2, 1))
    for mode in ("NEG", "ABS"):
        y = builder.emit("act", [several], (2, 4, 3), DType.INT8, attrs={"mode": mode})
    inner = transposed(builder, y, (1, 0, 2))
    builder.output(builder.emit("act", [inner], (4, 2, 3), DType.INT8, attrs={"mode": "NEG"}))
    viewed = transposed(builder, x, (1, 0, 2))
    flat = builder.emit("reshape", [viewed], (3, 8), DType.INT8)
    builder.output(builder.emit("act", [flat], (3, 8), DType.INT8, attrs={"mode": "NEG"}))
    builder.output(transposed(builder, x, (2, 0, 1)))
    graph = builder.finish()
    assert load_in_order(graph).nodes == graph.nodes


def test_only_graph_inputs_are_reordered():
    graph = load_in_order(network((1, 4, 4, 3)))
    assert kernel_for("reordered").unsupported(graph, graph.nodes[0], CONFIG) is None
    other = replace(graph, inputs=())
    assert "graph inputs" in str(kernel_for("reordered").unsupported(other, graph.nodes[0], CONFIG))
