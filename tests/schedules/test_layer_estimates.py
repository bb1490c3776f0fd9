"""What the model expects of layers on their own, against the simulator: where tiles differ in what they load."""

from __future__ import annotations

import numpy as np
import pytest
from schedules.cases import single
from schedules.models import add_conv, run_exact

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Engine
from torq_byoc.schedules.fusion.pricing import GroupChoice
from torq_byoc.schedules.plan import Scheduler, schedule
from torq_byoc.schedules.record import DecisionRecord, GroupDecision, NodeDecision

CONFIG = NpuConfig()


def table(rows: int = 320, columns: int = 320) -> OpGraph:
    builder = GraphBuilder("table")
    shape = (1, 1, rows, columns)
    x = builder.input("x", shape, DType.INT8)
    entries = np.stack([np.arange(-256, 256), np.zeros(512)], axis=1).astype(np.int16)
    attrs = {"table": entries, "out_zero_point": 3}
    builder.output(builder.emit("table", [x], shape, DType.INT8, attrs=attrs, rescale=single(128, 0, 0)))
    return builder.finish()


def stem() -> OpGraph:
    builder = GraphBuilder("stem")
    builder.output(add_conv(builder, builder.input("image", (1, 3, 96, 96), DType.INT8), 8, stride=2))
    return builder.finish()


@pytest.mark.parametrize("rows, columns", [(160, 64), (320, 23), (64, 320), (16, 320)])
def test_equal_programs_of_tables_are_loaded_for_the_first_tiles_alone(rows: int, columns: int) -> None:
    assert_estimated(table(), NodeDecision((1, 1, rows, columns), (2, 3, 0, 1), 2, 2), 0.08)


@pytest.mark.parametrize("rows, columns", [(10, 8), (25, 64), (30, 8), (16, 64), (8, 64)])
def test_so_are_those_of_many_tiles(rows: int, columns: int) -> None:
    assert_estimated(table(1000, columns), NodeDecision((1, 1, rows, columns), (0, 1, 2, 3), 2, 2), 0.15)


@pytest.mark.parametrize("channels, rows, order", [(4, 24, (2, 1, 3, 0)), (4, 12, (2, 1, 3, 0)), (4, 16, (1, 2, 3, 0))])
def test_rows_that_stay_for_all_channels_come_with_the_first(channels: int, rows: int, order: tuple[int, ...]) -> None:
    assert_estimated(stem(), NodeDecision((1, channels, rows, 48), order, None, 2), 0.03)


def assert_estimated(graph: OpGraph, decision: NodeDecision, tolerance: float) -> None:
    """Estimate and simulated cycles of a graph of one node agree."""
    (node,) = graph.nodes
    plan = schedule(graph, CONFIG, overrides=DecisionRecord({node.name: decision.to_override()}, groups=()))
    generated = run_exact(graph, plan, CONFIG)
    assert plan.nodes[0].decision == decision
    assert plan.nodes[0].estimate == pytest.approx(generated.timeline.total_cycles, rel=tolerance)


@pytest.mark.parametrize("columns", [8, 40, 80])
def test_bands_that_cut_the_rows_of_a_tensor_in_lram_are_expected_to_walk_its_rows(columns: int) -> None:
    """In a tile of its own the part would be one row; in the tensor's place every row of it is short."""
    builder, shape = GraphBuilder("walk"), (1, 8, 40, 80)
    x = builder.input("x", shape, DType.INT8)
    for name in ("first", "second", "third"):
        x = builder.emit("act", [x], shape, DType.INT8, rescale=single(1, 0, 0), hint=name)
    builder.output(x)
    graph, names = builder.finish(), ("second", "third")
    record = DecisionRecord(resident={"first": True}, groups=(GroupDecision(names, 3, columns, (1, 1), 2),))
    scheduler = Scheduler(graph, CONFIG, overrides=record)
    plan = scheduler.best()
    generated = run_exact(graph, scheduler.schedule(plan), CONFIG)
    busy = sum(
        event.end - event.start
        for event in generated.timeline.events
        if event.engine is Engine.SLICE and generated.jobs[event.job].node in names
    )
    group = plan.choices[-1]
    assert isinstance(group, GroupChoice)
    assert group.flow.work == pytest.approx(busy / CONFIG.slices, rel=0.02)
