"""Regions read back from scheduled TIR functions against what the kernels say they read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules.cases import CASES, Case, conv

from torq_byoc.kernels.kernel import kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_tiles import settle, tiles_of, transfers
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.tiles import output_regions


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


@st.composite
def windows(draw: st.DrawFn) -> Case:
    """A convolution of any geometry that has an output, with any legal tile."""
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    strides = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilations = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    pads = draw(st.tuples(*[st.integers(0, 4)] * 4))
    spatial = [
        draw(st.integers(max(1, (kernel[a] - 1) * dilations[a] + 1 - pads[a] - pads[a + 2]), 24)) for a in (0, 1)
    ]
    groups, group_in, group_out = draw(st.sampled_from(((1, 3, 8), (2, 2, 4), (4, 1, 1), (3, 2, 6))))
    case = conv(
        (2, groups * group_in, *spatial),
        (groups * group_out, group_in, *kernel),
        (),
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
    )
    return replace(case, tile=tuple(draw(st.integers(1, extent)) for extent in case.shape))


@settings(max_examples=40, deadline=None)
@given(windows())
def test_convolutions_of_any_geometry_read_what_the_kernel_reads(case: Case) -> None:
    graph = case.graph()
    node = graph.nodes[0]
    decision = NodeDecision(case.tile, (3, 1, 0, 2), None, 1)
    (load,) = [t for t in transfers(graph, node, decision) if t.buffer == "input0"]
    for output in output_regions(case.shape, decision):
        found = settle(graph, node, 0, load.region(output, case.tile))
        assert found == kernel_for("conv2d").input_region(graph, node, 0, output)


def test_tiles_that_end_inside_a_group_of_channels_read_every_group_they_touch() -> None:
    case = conv((1, 12, 6, 6), (18, 4, 3, 3), (1, 4, 4, 4), groups=3)
    graph = case.graph()
    decision = NodeDecision(case.tile, (1, 0, 2, 3), None, 1)
    (load,) = [t for t in transfers(graph, graph.nodes[0], decision) if t.buffer == "input0"]
    regions = [load.region(output, case.tile) for output in output_regions(case.shape, decision)]
    assert [(region.start[1], region.extent[1]) for region in regions] == [(0, 4), (0, 8), (4, 4), (8, 4), (8, 4)]


@pytest.mark.parametrize("channels", [3, 6, 9, 18])
def test_tiles_of_interleaved_groups_read_every_group(channels: int) -> None:
    case = conv((1, 12, 6, 6), (18, 4, 3, 3), (1, channels, 4, 4), groups=3, interleaved=True)
    graph = case.graph()
    decision = NodeDecision(case.tile, (1, 0, 2, 3), None, 1)
    (load,) = [t for t in transfers(graph, graph.nodes[0], decision) if t.buffer == "input0"]
    for output in output_regions(case.shape, decision):
        found = settle(graph, graph.nodes[0], 0, load.region(output, case.tile))
        assert found == kernel_for("conv2d").input_region(graph, graph.nodes[0], 0, output)
        assert (found.start[1], found.extent[1]) == (0, 12)
