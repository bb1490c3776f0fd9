"""A concatenation inside a fused group costs nothing where its parts are made in their places."""

from __future__ import annotations

import pytest
from schedules.models import add_conv, run_exact, whole_segment

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.fusion.bands import BandCut
from torq_byoc.schedules.fusion.division import Division
from torq_byoc.schedules.fusion.group_space import GroupSpace
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, GroupDecision

CONFIG = NpuConfig()


def branches(axis: int = 1, repeated: bool = False) -> OpGraph:
    """Two convolutions of one image, put together for a third one."""
    builder = GraphBuilder("branches")
    image = builder.input("image", (1, 16, 28, 28), DType.INT8)
    squeezed = add_conv(builder, image, 16, kernel=1, name="squeeze")
    parts = [add_conv(builder, squeezed, 32, kernel=kernel, name=f"expand{kernel}") for kernel in (1, 3)]
    if repeated:
        parts = [parts[0], parts[1], parts[1]]
    shape = [1, 32, 28, 28]
    shape[axis] *= len(parts)
    joined = builder.emit("concat", parts, tuple(shape), DType.INT8, attrs={"axis": axis}, hint="join")
    builder.output(add_conv(builder, joined, 16, kernel=1, name="last"))
    return builder.finish()


def in_bands(graph: OpGraph, rows: int) -> DecisionRecord:
    names = tuple(node.name for node in graph.nodes)
    return DecisionRecord(groups=(GroupDecision(names, 2, rows, (1,) * len(names), 2),))


@pytest.mark.parametrize("rows", [4, 7, 10, 28])
def test_what_is_made_in_its_place_takes_no_cycles(rows: int) -> None:
    graph = branches()
    plan = schedule(graph, CONFIG, overrides=in_bands(graph, rows))
    generated = run_exact(graph, plan, CONFIG)
    assert not any(op is not None and op.node == "join" for op in generated.jobs)
    space = GroupSpace(whole_segment(graph, CONFIG), CONFIG, CostWeights())
    choice = space.priced(plan.record.groups[0], frozenset())
    assert choice is not None
    work = max(cycles for track, cycles in generated.timeline.busy.items() if track.startswith("slice"))
    assert choice.flow.work == work
    assert choice.cycles == pytest.approx(generated.timeline.total_cycles, rel=0.03)


@pytest.mark.parametrize(("axis", "repeated"), [(2, False), (3, False), (1, True)])
def test_parts_that_do_not_lie_dense_in_the_whole_are_copied(axis: int, repeated: bool) -> None:
    graph = branches(axis, repeated)
    assert whole_segment(graph, CONFIG).joining == ()
    run_exact(graph, schedule(graph, CONFIG), CONFIG)


def test_what_is_put_together_twice_has_one_place() -> None:
    """The second concatenation copies what lies in the first one."""
    builder = GraphBuilder("twice")
    image = builder.input("image", (1, 16, 28, 28), DType.INT8)
    a, b, c = (add_conv(builder, image, 32, kernel=1, name=name) for name in "abc")
    shape, attrs = (1, 64, 28, 28), {"axis": 1}
    joined = [builder.emit("concat", pair, shape, DType.INT8, attrs=attrs, hint="join") for pair in ([a, b], [a, c])]
    builder.output(builder.emit("maximum", joined, shape, DType.INT8))
    graph = builder.finish()
    (first,) = whole_segment(graph, CONFIG).joining
    assert graph.nodes[first].inputs == (a, b)
    plan = schedule(graph, CONFIG, overrides=in_bands(graph, 7))
    generated = run_exact(graph, plan, CONFIG)
    work = max(cycles for track, cycles in generated.timeline.busy.items() if track.startswith("slice"))
    choice = GroupSpace(whole_segment(graph, CONFIG), CONFIG, CostWeights()).priced(plan.record.groups[0], frozenset())
    assert choice is not None and work <= choice.flow.work <= 1.2 * work


def test_bands_of_what_lies_in_lram_as_a_whole_are_copied() -> None:
    segment = whole_segment(branches(), CONFIG)
    (join,) = segment.joining
    whole, bands = (Division.of(segment, BandCut(2, rows)) for rows in (28, 7))
    assert whole is not None and bands is not None
    for name in ("join", "expand1", "expand3"):
        assert bands.in_place(frozenset({name})) == frozenset()
        assert whole.in_place(frozenset({name})) == {join}
    assert bands.in_place(frozenset({"image"})) == {join}


def test_the_whole_takes_its_place_with_its_first_part() -> None:
    """32 and 64 channels of 7 rows: the part beside the whole counts only where the whole stays elsewhere."""
    division = Division.of(whole_segment(branches(), CONFIG), BandCut(2, 7))
    assert division is not None
    beside = [one.between for one in division.traffic(frozenset())]
    apart = [one.between for one in division.traffic(frozenset({"expand1"}))]
    middle = len(beside) // 2
    squeezed, part, whole = 16 * 9 * 28, 32 * 7 * 28, 64 * 7 * 28
    assert beside[middle] == squeezed + whole
    assert apart[middle] == max(squeezed + part, part + whole)
