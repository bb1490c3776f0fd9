"""Regions read back from scheduled TIR functions against what the kernels say they read."""

from __future__ import annotations

import pytest
from schedules.cases import CASES, Case

from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_tiles import tiles_of
from torq_byoc.schedules.record import NodeDecision


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tile_inputs_equal_the_kernels_regions(case: Case) -> None:
    graph = case.graph()
    node = graph.nodes[0]
    kernel = kernel_for(node.op)
    model = NodeModel(graph, node, NpuConfig())
    decision = NodeDecision(case.tile, tuple(range(len(case.shape))), None, 2)
    for tile in tiles_of(graph, node, model, decision):
        wanted = tuple(kernel.input_region(graph, node, p, tile.output) for p in kernel.tensor_inputs(graph, node))
        assert tile.inputs == wanted
