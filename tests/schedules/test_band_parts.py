"""Nodes of a group that go through a band part by part: what they hold, what they move, and that no bit changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedules.models import run_exact, whole_segment
from schedules.test_fusion import inverted_residual

from torq_byoc.codegen.generate import generate
from torq_byoc.errors import ScheduleError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.fusion.bands import Band, BandCut, band
from torq_byoc.schedules.fusion.group_space import GroupSpace
from torq_byoc.schedules.fusion.parts import part_options
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, GroupParts

WIDE = 48
TIGHT = replace(NpuConfig(), name="lram16", lram_bytes=16 * 1024)
"""Has 14.75 KB for buffers: not enough for four rows of 96 channels and 40 pixels, which take 15 KB."""


def parted(graph: OpGraph, size: int = 4, part: int = 16, *, keep: bool = False) -> GroupDecision:
    names = tuple(node.name for node in graph.nodes)
    return GroupDecision(names, 2, size, (1,) * len(names), 2, parts=GroupParts(0, 1, 1, part, keep))


def band_of(graph: OpGraph, group: GroupDecision, index: int) -> Band:
    segment = whole_segment(graph, NpuConfig())
    found = band(segment, BandCut.of(group), index, lambda position, box: segment.models[position].input_regions(box))
    assert found is not None
    return found


def test_a_band_goes_part_by_part_and_what_reads_all_parts_follows_them() -> None:
    graph = inverted_residual(1)
    found = band_of(graph, parted(graph, size=6, part=20), 1)
    assert [position for position, _ in found.steps] == [0, 1, 0, 1, 0, 1, 2, 3]
    up, deep = ([box for position, box in found.steps if position == node] for node in (0, 1))
    assert deep == [Region((0, first, 6, 0), (1, count, 6, 24)) for first, count in ((0, 20), (20, 20), (40, 8))]
    assert up == [Region((0, first, 5, 0), (1, count, 8, 24)) for first, count in ((0, 20), (20, 20), (40, 8))]
    assert found.held[graph.nodes[0].output] == up[0], "one part at a time"
    assert found.held[graph.nodes[1].output] == Region((0, 0, 6, 0), (1, WIDE, 6, 24)), "put together"


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("size", "part"), [(1, 4), (4, 16), (5, 20), (24, 32)])
def test_no_bit_changes_and_nothing_between_crosses_the_bus(size: int, part: int, keep: bool, stride: int) -> None:
    graph = inverted_residual(2, stride=stride)
    size = min(size, 24 // stride)
    plan = schedule(graph, NpuConfig(), overrides=DecisionRecord(groups=(parted(graph, size, part, keep=keep),)))
    generated = run_exact(graph, plan, NpuConfig())
    up, deep, down = (generated.layer_bytes[node.name] for node in graph.nodes[:3])
    assert "out_activation" not in up and "out_activation" not in deep
    assert "in_activation" not in deep and "in_activation" not in down


@pytest.mark.parametrize("slices", [1, 2, 4])
def test_slices_share_a_part_along_rows_or_channels(slices: int) -> None:
    config, graph = replace(NpuConfig(), slices=slices), inverted_residual(3)
    for axes in ((1, 2, 1, 2), (2, 1, 2, 1), (None,) * 4):
        group = replace(parted(graph, 7, 12), split_axes=axes)
        run_exact(graph, schedule(graph, config, overrides=DecisionRecord(groups=(group,))), config)


def test_weights_that_are_kept_cross_the_bus_once() -> None:
    graph = inverted_residual(4)

    def weights(keep: bool) -> int:
        group = parted(graph, 2, 16, keep=keep)
        plan = schedule(graph, NpuConfig(), overrides=DecisionRecord(groups=(group,)))
        run_exact(graph, plan, NpuConfig())
        generated = generate(graph, plan, NpuConfig(), disabled=("clean-copies",))  # there is room to find them again
        return generated.layer_bytes[graph.nodes[1].name]["in_weights"]

    assert weights(keep=False) == 12 * weights(keep=True)


def test_the_price_counts_weights_for_every_band_unless_they_are_kept() -> None:
    graph = inverted_residual(5)
    space = GroupSpace(whole_segment(graph, NpuConfig()), NpuConfig(), CostWeights())

    def moved(group: GroupDecision) -> tuple[float, int]:
        choice = space.priced(group, frozenset())
        assert choice is not None
        return choice.nbytes - programs(choice), choice.demand

    def programs(choice: GroupChoice) -> int:
        return choice.division._slices(choice.decision.split_axes, frozenset()).program_bytes

    kept, anew = moved(parted(graph, 2, keep=True)), moved(parted(graph, 2, keep=False))
    whole = moved(replace(parted(graph, 2), parts=None))
    of_both = sum(granules.count * granules.nbytes for model in space.segment.models[:2] for granules in model.granules)
    assert kept[0] == whole[0]
    assert anew[0] - kept[0] == 11 * of_both
    assert anew[1] < kept[1] < whole[1]


def test_the_search_takes_parts_where_whole_bands_have_no_room() -> None:
    graph = inverted_residual(6, stride=2, size=40, wide=96)
    plan = schedule(graph, TIGHT)
    (group,) = plan.record.groups or ()
    assert len(group.nodes) == 3 and group.parts is not None
    assert schedule(graph, TIGHT, overrides=DecisionRecord.loads(plan.record.dumps())) == plan
    generated = run_exact(graph, plan, TIGHT)
    assert "out_activation" not in generated.layer_bytes[graph.nodes[1].name]


def test_parts_are_looked_for_where_a_reader_sums_over_them() -> None:
    segment = whole_segment(inverted_residual(7), NpuConfig())
    kept, anew = part_options(segment)
    assert [parts.size for parts in anew] == [24, 16, 12, 8]
    assert {(parts.first, parts.last, parts.axis, parts.keep) for parts in kept} == {(0, 1, 1, True)}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (GroupParts(1, 1, 1, 16), "two or more nodes"),
        (GroupParts(0, 3, 1, 4), "one that reads them"),
        (GroupParts(-1, 1, 1, 16), "two or more nodes"),
        (GroupParts(0, 1, 4, 16), "axis 4"),
        (GroupParts(0, 1, 1, 0), "parts of 0 along axis 1 do not suit"),
        (GroupParts(0, 1, 1, WIDE + 4), "parts of 52 along axis 1 do not suit"),
        (GroupParts(1, 2, 1, 4), "parts overlap"),
        (GroupParts(0, 1, 2, 2), "parts overlap"),
        (GroupParts(0, 1, 1, 6), "cut at multiples of 4"),
    ],
)
def test_parts_that_do_not_suit_are_refused(parts: GroupParts, why: str) -> None:
    graph = inverted_residual(8)
    record = DecisionRecord(groups=(replace(parted(graph), parts=parts),))
    with pytest.raises(ScheduleError) as caught:
        schedule(graph, NpuConfig(), overrides=record)
    assert "group of" in str(caught.value) and why in str(caught.value)


def test_a_record_names_parts_only_where_there_are_some() -> None:
    group = parted(inverted_residual(9), keep=True)
    for one in (group, replace(group, parts=None)):
        text = DecisionRecord(groups=(one,)).dumps()
        assert DecisionRecord.loads(text).groups == (one,)
        assert ("parts" in text) is (one.parts is not None)
    text = DecisionRecord(groups=(group,)).dumps()
    for wrong, why in (('"size": "all"', "size"), ('"size": 16, "sise": 1', "sise"), ('"last": 1', "last")):
        old = '"size": 16' if "siz" in wrong or "sis" in wrong else '"last": 1, '
        changed = text.replace(old, wrong if old != '"last": 1, ' else "")
        with pytest.raises(ScheduleError, match=why):
            DecisionRecord.loads(changed)
