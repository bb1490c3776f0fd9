"""Whole schedules: coverage, LRAM, residency, overrides, monotonicity, errors."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from schedules.models import flattened, residual, resnet50, strided

from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import Region, kernel_for
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.cost_model import FEWER_TILES
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, NodeOverride
from torq_byoc.schedules.scheduled import Schedule
from torq_byoc.schedules.tensor_expressions import definition


def with_lram(kib: float, **more: int) -> NpuConfig:
    return replace(NpuConfig(), lram_bytes=int(kib * 1024), **more)


def paint(canvas: np.ndarray, region: Region) -> None:
    canvas[tuple(slice(s, s + e) for s, e in zip(region.start, region.extent, strict=True))] += 1


def check_complete(graph: OpGraph, plan: Schedule, slices: int) -> None:
    """Every output element is computed, by tiles and by parts, and the reads are covered; once, but for the rows that
    the bands of a fused group have in common."""
    grouped = {name for group in plan.groups for name in group.nodes}
    for node, entry in zip([n for n in graph.nodes if n.op != "reshape"], plan.nodes, strict=True):
        assert node.name == entry.node
        shape = graph.tensors[node.output].shape
        by_tile, by_part = np.zeros(shape, int), np.zeros(shape, int)
        for tile in entry.tiles:
            paint(by_tile, tile.output)
            assert 1 <= len(tile.parts) <= slices
            for part in tile.parts:
                paint(by_part, part)
            assert tile.inputs == tuple(
                kernel_for(node.op).input_region(graph, node, position, tile.output)
                for position in kernel_for(node.op).tensor_inputs(graph, node)
            )
        assert np.array_equal(by_tile, by_part)
        assert by_tile.min() == 1 and (node.name in grouped or by_tile.max() == 1)


@pytest.mark.parametrize("graph", [residual(), flattened(), strided()], ids=lambda graph: graph.name)
@pytest.mark.parametrize("slices", [1, 2, 3])
def test_tiles_and_parts_cover_every_output_once(graph: OpGraph, slices: int) -> None:
    plan = schedule(graph, replace(NpuConfig(), slices=slices))
    check_complete(graph, plan, slices)


def test_little_memory_gives_many_tiles_and_no_residents() -> None:
    graph = residual(size=33)
    plan = schedule(graph, with_lram(24))
    check_complete(graph, plan, 2)
    assert not plan.resident
    assert all(len(entry.tiles) > 1 for entry in plan.nodes)


def test_everything_between_input_and_output_stays_when_it_fits() -> None:
    graph = residual()
    plan = schedule(graph, NpuConfig())
    kept = frozenset().union(*(group.kept for group in plan.groups))
    assert plan.resident | kept == frozenset(node.output for node in graph.nodes) - set(graph.outputs)


def test_tensors_read_in_stride_phases_are_not_resident() -> None:
    plan = schedule(strided(), NpuConfig())
    assert "stem" not in plan.resident


def test_an_alias_is_resident_with_its_tensor_and_has_no_entry() -> None:
    plan = schedule(flattened(), NpuConfig())
    assert {"stem", "flat"} <= plan.resident
    assert [entry.node for entry in plan.nodes] == ["stem", "fc"]


def test_record_reproduces_the_schedule() -> None:
    graph, config = residual(size=40), with_lram(64)
    plan = schedule(graph, config)
    again = schedule(graph, config, overrides=DecisionRecord.loads(plan.record.dumps()))
    assert again == plan


def test_same_input_same_schedule() -> None:
    assert schedule(residual(size=40), with_lram(64)) == schedule(residual(size=40), with_lram(64))


def test_more_memory_is_never_slower() -> None:
    graph = residual(size=40, channels=32, blocks=1)
    plans = [schedule(graph, with_lram(kib)) for kib in (32, 64, 128, 256, 512)]
    totals = [sum(e.estimate + FEWER_TILES * len(e.tiles) for e in plan.nodes) for plan in plans]
    assert all(later <= earlier * 1.005 for earlier, later in zip(totals, totals[1:], strict=False)), totals


def test_more_slices_are_never_slower() -> None:
    graph = residual(size=40, channels=32, blocks=1)
    totals = [sum(e.estimate for e in schedule(graph, replace(NpuConfig(), slices=n)).nodes) for n in (1, 2, 4)]
    assert totals == sorted(totals, reverse=True)


def test_partial_override_is_kept_and_the_rest_decided() -> None:
    graph = residual()
    fixed = DecisionRecord({"b0_a": NodeOverride(tile=(1, 8, 5, 28), order=(2, 1, 0, 3))}, {"b0_a": False})
    plan = schedule(graph, NpuConfig(), overrides=fixed)
    decision = next(entry.decision for entry in plan.nodes if entry.node == "b0_a")
    assert decision.tile == (1, 8, 5, 28) and decision.order == (2, 1, 0, 3)
    kept = plan.resident.union(*(group.kept for group in plan.groups))
    assert "b0_a" not in kept and {"stem", "b0_b", "b1_a"} & kept
    check_complete(graph, plan, 2)


@pytest.mark.parametrize(
    ("record", "where"),
    [
        (DecisionRecord({"nope": NodeOverride()}), "node 'nope'"),
        (DecisionRecord({"b0_a": NodeOverride(tile=(1, 8))}), "node 'b0_a' field 'tile'"),
        (DecisionRecord({"b0_a": NodeOverride(tile=(1, 6, 5, 28))}), "node 'b0_a' field 'tile'"),
        (DecisionRecord({"b0_a": NodeOverride(tile=(1, 8, 99, 28))}), "node 'b0_a' field 'tile'"),
        (DecisionRecord({"b0_a": NodeOverride(order=(0, 1, 2, 2))}), "node 'b0_a' field 'order'"),
        (DecisionRecord({"b0_a": NodeOverride(split_axis=(4,))}), "node 'b0_a' field 'split_axis'"),
        (DecisionRecord({"b0_a": NodeOverride(buffers=3)}), "node 'b0_a' field 'buffers'"),
        (DecisionRecord(resident={"image": True}), "resident 'image'"),
        (DecisionRecord(resident={"b1_add": True}), "resident 'b1_add'"),
    ],
)
def test_overrides_that_do_not_apply_name_node_and_field(record: DecisionRecord, where: str) -> None:
    with pytest.raises(ScheduleError) as problem:
        schedule(residual(), NpuConfig(), overrides=record)
    assert problem.value.to_json()["where"] == where


def test_aliases_may_not_disagree() -> None:
    with pytest.raises(ScheduleError):
        schedule(flattened(), NpuConfig(), overrides=DecisionRecord(resident={"stem": True, "flat": False}))


def test_a_record_may_fix_a_tile_that_fits_beside_its_resident_input_alone() -> None:
    graph, config = doubled((1, 16, 32, 32)), replace(NpuConfig(), lram_bytes=44 << 10)
    whole = NodeOverride(tile=(1, 16, 32, 32), buffers=1)
    record = DecisionRecord({"doubled": whole}, {"copy": True})
    assert schedule(graph, config, overrides=record).record.nodes["doubled"].tile == whole.tile
    with pytest.raises(ScheduleError, match="do not fit"):
        schedule(graph, config, overrides=DecisionRecord({"doubled": whole}))


def doubled(shape: tuple[int, ...]) -> OpGraph:
    """A tensor that one node makes and the next one reads twice."""
    builder = GraphBuilder("doubled")
    copy = builder.emit("act", [builder.input("x", shape, DType.INT8)], shape, DType.INT8, hint="copy")
    builder.output(builder.emit("maximum", [copy, copy], shape, DType.INT8, hint="doubled"))
    return builder.finish()


def test_forced_residents_that_do_not_fit_are_a_schedule_error() -> None:
    graph = residual(size=64, channels=32)
    with pytest.raises(ScheduleError, match="resident"):
        schedule(graph, with_lram(128), overrides=DecisionRecord(resident={"stem": True, "b0_a": True}))


def test_overflow_reports_demand_bound_and_contributors() -> None:
    with pytest.raises(LramOverflowError) as problem:
        schedule(residual(size=64, channels=64), with_lram(2.5))
    details = problem.value.details
    assert details["gap"] == details["demand"] - details["bound"] > 0
    assert details["bound"] == 2.5 * 1024 - NpuConfig().lram_reserve
    assert sum(entry["bytes"] for entry in details["contributors"]) == pytest.approx(details["demand"], abs=64)
    assert details["contributors"][0]["bytes"] == max(entry["bytes"] for entry in details["contributors"])
    assert any("LRAM" in lever for lever in details["levers"])
    assert problem.value.remedy and problem.value.where == details["node"]


def test_budget_bounds_the_residents() -> None:
    graph = residual(size=64, channels=32)
    whole, half = (schedule(graph, NpuConfig(), budget=budget) for budget in (1.0, 0.5))
    nbytes = {name: graph.tensors[name].nbytes for name in graph.tensors}
    assert sum(nbytes[name] for name in half.resident) < sum(nbytes[name] for name in whole.resident)
    largest = max(math.prod(graph.tensors[name].shape) for name in half.resident)
    assert largest <= NpuConfig().lram_usable * 0.5


@pytest.mark.slow
def test_resnet50_is_scheduled_in_seconds() -> None:
    graph = resnet50()
    began = time.process_time()
    plan = schedule(graph, NpuConfig())
    assert time.process_time() - began < 10
    check_complete(graph, plan, 2)


def test_plug_in_operators_without_a_tensor_expression_are_asked_for_their_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = residual()
    wanted = schedule(graph, NpuConfig())
    monkeypatch.delitem(definition._BUILDERS, "conv2d")
    assert schedule(graph, NpuConfig()) == wanted


def test_a_graph_of_aliases_alone_has_nothing_to_schedule() -> None:
    builder = GraphBuilder("aliases")
    x = builder.input("x", (2, 6), DType.INT8)
    builder.output(builder.emit("reshape", [x], (3, 4), DType.INT8))
    plan = schedule(builder.finish(), NpuConfig())
    assert plan.nodes == () and plan.resident == frozenset()


@pytest.mark.parametrize("effort", [0, 1, 2])
def test_effort_changes_quality_not_correctness(effort: int) -> None:
    graph = residual(size=20, blocks=1)
    check_complete(graph, schedule(graph, with_lram(32), effort=effort), 2)


def test_unknown_effort_is_refused() -> None:
    with pytest.raises(ScheduleError, match="effort"):
        schedule(residual(), NpuConfig(), effort=4)
