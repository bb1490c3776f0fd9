"""Groups cut along two axes: all bands of a head before those of the next one, so that its operands stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from schedules.models import run_exact, whole_segment

from torq_byoc.errors import ScheduleError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.fusion.bands import Band, BandCut, band, band_count
from torq_byoc.schedules.fusion.group_space import GroupSpace
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, GroupDecision

HEADS, TOKENS, WIDTH = 3, 53, 20
SMALL = replace(NpuConfig(), name="lram12", lram_bytes=12 * 1024)
"""Holds k and v of a head, but not its scores beside them."""


def attention(heads: int = HEADS) -> OpGraph:
    """q k^T, clipped, times v, head by head."""
    builder = GraphBuilder("attention")
    q = builder.input("q", (1, heads, TOKENS, WIDTH), DType.INT8)
    k = builder.input("k", (1, heads, WIDTH, TOKENS), DType.INT8)
    v = builder.input("v", (1, heads, TOKENS, WIDTH), DType.INT8)
    rescale = Rescale(np.array([-77], np.int32), np.array([3 << 24], np.int32), 33, 5)
    scores = builder.emit("matmul", [q, k], (1, heads, TOKENS, TOKENS), DType.INT8, rescale=rescale, origin="scores")
    clipped = builder.emit(
        "act", [scores], (1, heads, TOKENS, TOKENS), DType.INT8, rescale=replace(rescale, clip_min=-20), origin="clip"
    )
    mixed = builder.emit("matmul", [clipped, v], (1, heads, TOKENS, WIDTH), DType.INT8, rescale=rescale, origin="mixed")
    builder.output(mixed)
    return builder.finish()


def nested(graph: OpGraph, size: int = 16, buffers: int = 2) -> GroupDecision:
    names = tuple(node.name for node in graph.nodes)
    return GroupDecision(names, 2, size, (2,) * len(names), buffers, outer=1)


def test_bands_of_a_head_follow_one_another_and_need_the_same_of_k_and_v() -> None:
    graph = attention()
    segment, cut = whole_segment(graph, SMALL), BandCut(2, 16, outer=1)
    assert band_count(segment, cut) == HEADS * 4

    def at(index: int) -> Band:
        found = band(segment, cut, index, lambda position, box: segment.models[position].input_regions(box))
        assert found is not None
        return found

    middle, last = at(4 + 1), at(4 + 3)
    assert middle.outputs[-1] == Region((0, 1, 16, 0), (1, 1, 16, WIDTH))
    assert last.outputs[-1] == Region((0, 1, 48, 0), (1, 1, TOKENS - 48, WIDTH))
    assert middle.held["q"] == Region((0, 1, 16, 0), (1, 1, 16, WIDTH))
    assert middle.held["k"] == last.held["k"] == Region((0, 1, 0, 0), (1, 1, WIDTH, TOKENS))
    assert at(8).held["v"] == Region((0, 2, 0, 0), (1, 1, TOKENS, WIDTH))


@pytest.mark.parametrize("slices", [1, 2, 3])
@pytest.mark.parametrize("size", [4, 16, 36])
def test_every_operand_and_result_crosses_the_bus_once(size: int, slices: int) -> None:
    config, graph = replace(SMALL, slices=slices), attention()
    plan = schedule(graph, config, overrides=DecisionRecord(groups=(nested(graph, size),)))
    generated = run_exact(graph, plan, config)
    operand = HEADS * TOKENS * WIDTH
    first, clip, last = (generated.layer_bytes[node.name] for node in graph.nodes)
    assert first["in_activation"] == 2 * operand and "out_activation" not in first
    assert "in_activation" not in clip
    assert last["in_activation"] == operand and last["out_activation"] == operand


def test_the_search_cuts_heads_and_rows_where_neither_is_enough() -> None:
    graph = attention()
    plan = schedule(graph, SMALL)
    (group,) = (entry for entry in plan.record.groups or () if len(entry.nodes) == 3)
    assert group.outer == 1 and group.axis == 2
    assert schedule(graph, SMALL, overrides=DecisionRecord.loads(plan.record.dumps())) == plan
    alone = schedule(graph, SMALL, overrides=DecisionRecord(groups=()))
    assert plan.expected < alone.expected
    run_exact(graph, plan, SMALL)


def test_what_stays_for_the_bands_of_a_head_is_counted_once_a_head() -> None:
    graph = attention()
    space = GroupSpace(whole_segment(graph, SMALL), SMALL, CostWeights())
    names = tuple(node.name for node in graph.nodes)
    inside = space.priced(nested(graph), frozenset())
    rows = space.priced(GroupDecision(names, 2, 16, (2,) * 3, 2), frozenset())
    assert inside is not None and rows is not None
    there = space.priced(nested(graph), frozenset({"k", "v"}))
    assert there is not None and inside.nbytes - there.nbytes == 2 * HEADS * TOKENS * WIDTH
    assert inside.demand < rows.demand, "one head of k and v instead of all"


def test_one_band_a_head_loads_and_stores_everything_once() -> None:
    graph = attention()
    space = GroupSpace(whole_segment(graph, SMALL), SMALL, CostWeights())
    through_xram = space.priced(nested(graph, TOKENS), frozenset())
    there = space.priced(nested(graph, TOKENS), frozenset({"q", "k", "v"}))
    assert through_xram is not None and there is not None
    assert through_xram.tiles == HEADS * 3
    assert through_xram.nbytes - there.nbytes == 3 * HEADS * TOKENS * WIDTH


@pytest.mark.parametrize(("outer", "why"), [(2, "axis 2"), (9, "axis 9"), (-1, "axis -1")])
def test_an_outer_axis_that_does_not_suit_is_named(outer: int, why: str) -> None:
    graph = attention()
    record = DecisionRecord(groups=(replace(nested(graph), outer=outer),))
    with pytest.raises(ScheduleError) as caught:
        schedule(graph, SMALL, overrides=record)
    assert "group of" in str(caught.value) and why in str(caught.value)


def test_a_record_names_the_outer_axis_only_where_there_is_one() -> None:
    group = nested(attention())
    for one in (group, replace(group, outer=None)):
        text = DecisionRecord(groups=(one,)).dumps()
        assert DecisionRecord.loads(text).groups == (one,)
        assert ("outer" in text) is (one.outer is not None)
    with pytest.raises(ScheduleError, match="outer"):
        DecisionRecord.loads(DecisionRecord(groups=(group,)).dumps().replace('"outer": 1', '"outer": "heads"'))
