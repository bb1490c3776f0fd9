"""Fused groups: what a band needs, which groups are chosen, what a person may fix, and that results keep their bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from codegen.infra import convolution, heavy_tailed, residual_graph
from schedules.models import residual, run_exact, strided, whole_segment

from torq_byoc.errors import ScheduleError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.fusion.bands import BandCut, band
from torq_byoc.schedules.fusion.group_space import GroupSpace
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, GroupDecision

SMALL = replace(NpuConfig(), name="lram96", lram_bytes=96 * 1024)


def inverted_residual(seed: int, stride: int = 1, size: int = 24, wide: int = 48) -> OpGraph:
    """1x1 up, depthwise 3x3, 1x1 down, and the input added when shapes allow: the block of MobileNetV2."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder("block")
    x = builder.input("x", (1, 8, size, size), DType.INT8)
    up = convolution(builder, rng, x, wide, 1, 1, 0, "up")
    weight = builder.constant(heavy_tailed(rng, (wide, 1, 3, 3)), "depthwise_weight")
    scales = rng.integers(2**24, 2**26, wide).astype(np.int32)
    rescale = Rescale(rng.integers(-200, 200, wide).astype(np.int32), scales, 32, 5, axis=1)
    attrs = {"strides": (stride, stride), "dilations": (1, 1), "pads": (1, 1, 1, 1), "groups": wide, "pad_value": -3}
    out = (size - 1) // stride + 1
    deep = builder.emit(
        "conv2d", [up, weight], (1, wide, out, out), DType.INT8, attrs=attrs, rescale=rescale, origin="depthwise"
    )
    down = convolution(builder, rng, deep, 8, 1, 1, 0, "down")
    if stride == 1:
        shortcut = Rescale(np.array([1234], np.int32), None, 13, 2)
        down = builder.emit(
            "sum2", [down, x], (1, 8, size, size), DType.INT8, attrs={"weights": (5000, 3100)}, rescale=shortcut
        )
    builder.output(down)
    return builder.finish()


def test_a_node_in_two_groups_is_refused() -> None:
    graph = residual()
    first, second, third = (node.name for node in graph.nodes[:3])
    groups = tuple(GroupDecision(names, 2, 4, (1, 1), 2) for names in ((first, second), (second, third)))
    with pytest.raises(ScheduleError, match="more than one group"):
        schedule(graph, NpuConfig(), overrides=DecisionRecord(groups=groups))


def group_of(graph: OpGraph, size: int, axis: int = 2, split: int | None = 1, buffers: int = 2) -> DecisionRecord:
    names = tuple(node.name for node in graph.nodes)
    return DecisionRecord(groups=(GroupDecision(names, axis, size, (split,) * len(names), buffers),))


def test_a_band_needs_the_halo_of_every_window_and_no_more() -> None:
    graph = inverted_residual(0)
    segment = whole_segment(graph, SMALL)
    up, deep, down, total = (node.output for node in graph.nodes)
    read = {position: model.input_regions for position, model in enumerate(segment.models)}
    middle = band(segment, BandCut(2, 6), 1, lambda position, box: read[position](box))
    assert middle is not None
    rows = {name: (held.start[2], held.extent[2]) for name, held in middle.held.items()}
    assert rows == {total: (6, 6), down: (6, 6), deep: (6, 6), up: (5, 8), "x": (5, 8)}
    top = band(segment, BandCut(2, 6), 0, lambda position, box: read[position](box))
    assert top is not None and top.held[up] == Region((0, 0, 0, 0), (1, 48, 7, 24))


def test_what_is_passed_on_inside_a_group_never_crosses_the_bus() -> None:
    graph = inverted_residual(1, wide=96)
    plan = schedule(graph, SMALL)
    assert plan.groups, "the widened tensors exceed the LRAM"
    generated = run_exact(graph, plan, SMALL)
    passed_on = frozenset().union(*(group.kept for group in plan.groups)) | plan.resident
    kept = [node.name for node in graph.nodes if node.output in passed_on]
    assert {graph.nodes[0].name, graph.nodes[1].name} <= set(kept)
    assert all("out_activation" not in generated.layer_bytes[name] for name in kept)
    alone = run_exact(graph, schedule(graph, SMALL, overrides=DecisionRecord(groups=())), SMALL)
    assert sum(entry.get("out_activation", 0) for entry in alone.layer_bytes.values()) > 96 * 24 * 24


def test_a_stride_2_reader_gets_its_phases_from_the_producer() -> None:
    graph = inverted_residual(2, stride=2)
    plan = schedule(graph, SMALL)
    (group,) = plan.groups
    assert group.phases == {graph.nodes[0].output: (2, 2)}
    run_exact(graph, plan, SMALL)


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_a_stride_2_reader_gets_its_phases_from_an_addition(rows: int) -> None:
    builder, rng = GraphBuilder("down"), np.random.default_rng(8)
    x = builder.input("x", (1, 6, 12, 12), DType.INT8)
    first, second = (convolution(builder, rng, x, 8, 3, 1, 1, name) for name in ("first", "second"))
    rescale = Rescale(np.array([77], np.int32), None, 13, 2)
    total = builder.emit(
        "sum2", [first, second], (1, 8, 12, 12), DType.INT8, attrs={"weights": (5000, 3100)}, rescale=rescale
    )
    builder.output(convolution(builder, rng, total, 8, 3, 2, 1, "down"))
    graph = builder.finish()
    plan = schedule(graph, NpuConfig(), overrides=group_of(graph, rows))
    assert plan.groups[0].phases == {total: (2, 2)}
    run_exact(graph, plan, NpuConfig())


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 5, 8, 12])
@pytest.mark.parametrize("split", [None, 1, 2])
def test_every_band_size_and_split_is_exact(stride: int, size: int, split: int | None) -> None:
    graph = inverted_residual(3, stride)
    run_exact(graph, schedule(graph, NpuConfig(), overrides=group_of(graph, size, split=split)), NpuConfig())


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("slices", [1, 2, 3])
def test_groups_with_shortcuts_inside_and_results_needed_outside(buffers: int, slices: int) -> None:
    config = replace(NpuConfig(), slices=slices)
    graph = residual_graph(4)
    names = tuple(node.name for node in graph.nodes)[:3]
    record = DecisionRecord(groups=(GroupDecision(names, 2, 5, (1, 1, 1), buffers),))
    plan = schedule(graph, config, overrides=record)
    assert [group.nodes for group in plan.groups] == [names]
    run_exact(graph, plan, config)


def test_a_result_needed_inside_and_outside_is_stored_as_well() -> None:
    """The stem feeds the first convolution of a block, which is fused with it, and the addition, which is not."""
    graph = residual(size=20, blocks=1)
    names = tuple(node.name for node in graph.nodes)[:2]
    record = DecisionRecord({}, {names[0]: False}, (GroupDecision(names, 2, 5, (1, 1), 2),))
    plan = schedule(graph, NpuConfig(), overrides=record)
    assert not plan.groups[0].kept
    run_exact(graph, plan, NpuConfig())


def test_channels_are_a_band_axis_where_rows_are_read_whole() -> None:
    graph = residual_graph(5)
    names = tuple(node.name for node in graph.nodes)[1:3]
    plan = schedule(graph, NpuConfig(), overrides=DecisionRecord(groups=(GroupDecision(names, 1, 8, (1, 1), 2),)))
    assert len(plan.groups[0].bands) == 2
    run_exact(graph, plan, NpuConfig())


def test_bands_in_which_different_branches_work_are_not_priced() -> None:
    """Channels of a concatenation: each band would run one of the convolutions, whose weights no price counts."""
    rng = np.random.default_rng(9)
    builder = GraphBuilder("branches")
    x = builder.input("x", (1, 8, 12, 12), DType.INT8)
    branches = [convolution(builder, rng, x, 16, 1, 1, 0, f"branch{index}") for index in range(3)]
    builder.output(builder.emit("concat", branches, (1, 48, 12, 12), DType.INT8, attrs={"axis": 1}))
    graph = builder.finish()
    space = GroupSpace(whole_segment(graph, SMALL), SMALL, CostWeights())
    names = tuple(node.name for node in graph.nodes)
    assert space.priced(GroupDecision(names, 1, 16, (1,) * 4, 2), frozenset()) is None
    rows = space.priced(GroupDecision(names, 2, 4, (1,) * 4, 2), frozenset())
    assert rows is not None and rows.demand < SMALL.lram_bytes


def test_the_record_of_a_fused_schedule_gives_it_again() -> None:
    graph = inverted_residual(6)
    plan = schedule(graph, SMALL)
    assert plan.groups
    assert schedule(graph, SMALL, overrides=DecisionRecord.loads(plan.record.dumps())) == plan


def test_effort_0_and_an_empty_list_fuse_nothing() -> None:
    graph = inverted_residual(7)
    assert not schedule(graph, SMALL, effort=0).groups
    assert not schedule(graph, SMALL, overrides=DecisionRecord(groups=())).groups


def test_nodes_fixed_by_hand_stay_on_their_own() -> None:
    graph = inverted_residual(8)
    first = graph.nodes[0].name
    fixed = schedule(graph, SMALL, overrides=DecisionRecord(groups=())).record.nodes[first]
    plan = schedule(graph, SMALL, overrides=DecisionRecord({first: fixed}))
    assert all(first not in group.nodes for group in plan.groups)


@pytest.mark.parametrize(
    ("nodes", "change", "why"),
    [
        (("nope", "down"), {}, "no node 'nope'"),
        (("stem", "tail"), {}, "follow one another"),
        (("stem",), {}, "two or more nodes"),
        (("stem", "down"), {"axis": 7}, "axis 7"),
        (("stem", "down"), {"size": 0}, "bands of 0"),
        (("stem", "down"), {"axis": 1, "size": 3}, "multiples of 4"),
        (("stem", "down"), {"split_axes": (1,)}, "1 split axes for 2 nodes"),
        (("stem", "down"), {"split_axes": (1, 9)}, "cannot be cut along axis 9"),
        (("stem", "down"), {"buffers": 3}, "neither 1 nor 2"),
    ],
)
def test_groups_that_do_not_apply_are_named(nodes: tuple[str, ...], change: dict[str, object], why: str) -> None:
    group = replace(GroupDecision(nodes, 2, 4, (None,) * len(nodes), 2), **change)
    with pytest.raises(ScheduleError) as caught:
        schedule(strided(), NpuConfig(), overrides=DecisionRecord(groups=(group,)))
    assert "group of" in str(caught.value) and why in str(caught.value)


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ('{"nodes": ["a", "b"]}', "groups: expected a list"),
        ('[{"nodes": ["a", "b"], "axis": 2, "size": 4, "split_axes": [1, 1]}]', "'buffers' is missing"),
        ('[{"nodes": ["a", 3], "axis": 2, "size": 4, "split_axes": [1, 1], "buffers": 2}]', "a node name"),
        ('[{"nodes": [], "axis": 2, "size": 4, "split_axes": [], "buffers": 2, "rows": 3}]', "unknown key 'rows'"),
    ],
)
def test_group_entries_that_cannot_be_read_are_named(groups: str, why: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        DecisionRecord.loads(f'{{"format": 1, "groups": {groups}}}')
    assert why.split(": ")[-1] in str(caught.value)
