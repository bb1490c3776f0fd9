"""Operators larger than the LRAM: reductions in portions are found, verified, bit-exact, and described as data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules.test_tensor_expressions import run

from tests.kernels import test_portions as kernels
from tests.kernels.infra import one_node
from torq_byoc.codegen.generate import generate
from torq_byoc.errors import LramOverflowError, ScheduleError
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.npu_model.verifier import verify
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.decide import NodeSpace
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.node_tiles import scheduled_function, tiles_of
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord, NodeDecision, NodeOverride
from torq_byoc.schedules.scheduled import Schedule
from torq_byoc.schedules.tiles import portions_of

I8, I16, BF = DType.INT8, DType.INT16, DType.BF16


def machine(kib: int, **fields: int) -> NpuConfig:
    return replace(NpuConfig(), lram_bytes=kib * 1024, **fields)


def check(
    graph: OpGraph, operands: list[np.ndarray], config: NpuConfig, record: DecisionRecord | None = None
) -> Schedule:
    """Compile, verify, run, and compare with the whole-tensor reference."""
    plan = schedule(graph, config, overrides=record)
    program = generate(graph, plan, config).program
    verify(program)
    inputs = dict(zip(graph.inputs, operands, strict=False))
    found = Simulator(program).run(inputs)
    wanted = evaluate(graph, inputs)
    for name in graph.outputs:
        kernels.assert_same(found[name], wanted[name])
    return plan


LONG = {
    "fully connected": kernels.matmul((1, 9000), (9000, 100)),
    "fully connected, int16": kernels.matmul((2, 5000), (5000, 40), (I16, I16, I16)),
    "fully connected, bf16": kernels.matmul((1, 9000), (9000, 40), (BF, BF, BF)),
    "many rows": kernels.matmul((21, 9000), (9000, 70)),
    "computed operands": kernels.matmul((2, 9, 6000), (2, 6000, 70), constant=False),
    "sum of everything": kernels.reduce((1, 3, 120, 160), (1, 2, 3)),
    "mean of large maps": kernels.reduce((1, 5, 240, 260), (2, 3), per_channel=1),
    "largest of long rows": kernels.reduce((3, 65000), (1,), "max"),
    "largest of long bf16 rows": kernels.reduce((3, 33000), (1,), "max", BF),
    "sum of outer rows": kernels.reduce((40000, 3), (0,), keepdims=False),
    "many channels": kernels.conv((1, 1500, 7, 7), (10, 1500, 3, 3), pads=(1, 1, 1, 1)),
    "many channels, stride 2": kernels.conv((1, 1500, 9, 9), (6, 1500, 3, 3), pads=(1, 1, 1, 1), strides=(2, 2)),
    "a window over everything": kernels.conv((1, 700, 7, 7), (9, 700, 7, 7)),
    "average of a large plane": kernels.pool("sumpool", (1, 3, 240, 260), (240, 260), (1, 1)),
    "large windows": kernels.pool("maxpool", (1, 3, 150, 450), (150, 150), (150, 150)),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("kib", [16, 32, 64])
def test_long_reductions_fit_little_memory(name: str, kib: int) -> None:
    plan = check(*LONG[name], machine(kib))
    assert kib > 32 or plan.nodes[0].decision.portion, "it is not long enough to need portions"


@pytest.mark.parametrize("slices", [1, 3, 4])
def test_every_slice_carries_its_own_sums(slices: int) -> None:
    plan = check(*LONG["many rows"], machine(32, slices=slices))
    assert plan.nodes[0].decision.portion
    assert max(len(tile.parts) for tile in plan.nodes[0].tiles) == slices


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 20), st.integers(1500, 9000), st.integers(1, 150), st.sampled_from((16, 24, 40)), st.booleans())
def test_products_of_any_size(rows: int, inner: int, columns: int, kib: int, constant: bool) -> None:
    check(*kernels.matmul((rows, inner), (inner, columns), constant=constant), machine(kib))


@settings(max_examples=15, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 70), st.integers(1, 90), st.integers(1, 90)),
    st.sets(st.integers(0, 3), min_size=1),
    st.sampled_from(("sum", "max")),
    st.sampled_from((8, 16)),
)
def test_reductions_of_any_size(shape, axes, kind, kib) -> None:
    if np.prod([shape[axis] for axis in axes]) <= NpuConfig().limits.max_reduction:
        check(*kernels.reduce(shape, sorted(axes), kind), machine(kib))


def test_weights_stream_once_behind_the_transfers() -> None:
    """A fully connected layer of 25088 inputs: time is that of its weights through DMA, at 64 and 512 KiB."""
    graph, _ = kernels.matmul((1, 25088), (25088, 512))
    for kib in (64, 512):
        config = machine(kib)
        timeline = simulate_timeline(generate(graph, schedule(graph, config), config).program)
        weights = 25088 * 512 / config.dma_bytes_per_cycle
        assert timeline.total_cycles < 1.03 * weights


def test_short_reductions_stay_whole() -> None:
    for graph, _ in (kernels.matmul((64, 256), (256, 256)), kernels.reduce((1, 64, 14, 14), (2, 3))):
        assert schedule(graph, NpuConfig()).nodes[0].decision.portion == ()


def test_the_estimate_follows_the_simulator() -> None:
    for name in ("fully connected", "mean of large maps", "many channels"):
        graph, config = LONG[name][0], machine(32)
        plan = schedule(graph, config)
        cycles = simulate_timeline(generate(graph, plan, config).program).total_cycles
        assert cycles == pytest.approx(plan.nodes[0].estimate, rel=0.2)


def test_portions_are_row_major_and_complete() -> None:
    portions = portions_of((3, 4, 5), (1, 3, 5))
    assert [part.box.start for part in portions] == [(i, j, 0) for i in range(3) for j in (0, 3)]
    assert [part.box.extent for part in portions] == [(1, size, 5) for _ in range(3) for size in (3, 1)]
    assert [part.first for part in portions] == [True] + [False] * 5
    assert [part.last for part in portions] == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("case", "decision"),
    [
        ("fully connected", NodeDecision((1, 50), (1, 0), None, 2, (700,))),
        ("many channels", NodeDecision((1, 8, 5, 7), (1, 2, 0, 3), 1, 2, (400,))),
        ("many channels, stride 2", NodeDecision((1, 4, 5, 5), (1, 2, 0, 3), None, 2, (400,))),
        ("mean of large maps", NodeDecision((1, 5, 1, 1), (0, 1, 2, 3), None, 2, (7, 260))),
        ("mean of large maps", NodeDecision((1, 2, 1, 1), (0, 1, 2, 3), 1, 2, (1, 100))),
        ("sum of everything", NodeDecision((1, 1, 1, 1), (0, 1, 2, 3), None, 1, (1, 50, 160))),
        ("average of a large plane", NodeDecision((1, 3, 1, 1), (0, 1, 2, 3), None, 2, (7, 260))),
    ],
)
def test_tir_loads_what_the_kernel_reads(case: str, decision: NodeDecision) -> None:
    graph = LONG[case][0]
    node, model = graph.nodes[0], NodeModel(graph, graph.nodes[0], NpuConfig())
    tiles = tiles_of(graph, node, model, decision)
    assert len(tiles) > 1
    for tile in tiles:
        assert tile.inputs == model.input_regions(tile.output, tile.portion)


@pytest.mark.parametrize(
    ("case", "tile", "portion"),
    [
        (kernels.matmul((5, 90), (90, 70)), (4, 35), (40,)),
        (kernels.conv((1, 9, 8, 7), (6, 9, 3, 3), pads=(1, 1, 1, 1)), (1, 4, 5, 7), (4,)),
        (kernels.reduce((4, 5, 6), (0, 2), keepdims=False), (2,), (1, 4)),
        (kernels.pool("maxpool", (1, 5, 9, 9), (4, 3), (1, 1)), (1, 2, 1, 1), (1, 2)),
    ],
    ids=["matmul", "conv2d", "reduce", "maxpool"],
)
def test_tir_in_portions_computes_the_same_on_the_cpu(case, tile, portion) -> None:
    graph, operands = case
    decision = NodeDecision(tile, tuple(range(len(tile))), None, 2, portion)
    function = scheduled_function(graph, graph.nodes[0], decision).mod["main"]
    assert f"T.int64({len(tile)})" in str(function) or f'"torq.tile_loop": {len(tile)}' in str(function)
    kernels.assert_same(run(function, graph, operands), kernels.reference(graph, operands))


def test_record_reproduces_portions() -> None:
    graph, operands = LONG["many rows"]
    plan = check(graph, operands, machine(32))
    again = check(graph, operands, machine(32), DecisionRecord.loads(plan.record.dumps()))
    assert again == plan and plan.nodes[0].decision.portion


def test_a_portion_fixed_by_hand_is_kept() -> None:
    graph, operands = LONG["many rows"]
    name = graph.nodes[0].name
    fixed = DecisionRecord({name: NodeOverride(tile=(8, 35), portion=(1000,), split_axis=(None,))})
    with pytest.raises(ScheduleError, match="do not fit the accumulators"):
        schedule(graph, machine(64), overrides=fixed)
    fixed = DecisionRecord({name: NodeOverride(portion=(431,))})
    decision = check(graph, operands, machine(64), fixed).nodes[0].decision
    assert decision.portion == (431,)


@pytest.mark.parametrize(
    ("portion", "words"),
    [
        ((4, 4), "2 extents for a reduction over [240, 260]"),
        ((0, 4, 1), "3 extents"),
        ((241, 260), "extent 241 along reduction axis 0 is outside 1..240"),
        ((240, 260), "it is the whole reduction"),
        ((2, 100), "axes outside a cut one must have extent 1"),
    ],
)
def test_portions_that_do_not_apply_name_node_and_field(portion: tuple[int, ...], words: str) -> None:
    graph = LONG["mean of large maps"][0]
    if portion == (4, 4):
        graph, words = LONG["fully connected"][0], "2 extents for a reduction over [9000]"
    record = DecisionRecord({graph.nodes[0].name: NodeOverride(portion=portion)})
    with pytest.raises(ScheduleError) as problem:
        schedule(graph, NpuConfig(), overrides=record)
    assert problem.value.where == f"node {graph.nodes[0].name!r} field 'portion'"
    assert words in str(problem.value)


def test_what_cannot_be_divided_still_overflows_with_a_report() -> None:
    """The index of an extremum needs its whole row."""
    graph = one_node(
        "reduce", [((2, 40000), I8)], (2, 1), DType.INT32, {"kind": "argmax", "axes": (1,), "keepdims": True}
    )
    with pytest.raises(LramOverflowError) as problem:
        schedule(graph, machine(32))
    details = problem.value.details
    assert details["contributors"][0] == {"name": "x0", "shape": [1, 40000], "bytes": 40000, "buffers": 1}
    assert details["gap"] == details["demand"] - details["bound"] > 0
    assert any("KiB of LRAM" in lever for lever in details["levers"])


def test_smallest_is_in_portions_where_they_help() -> None:
    graph = LONG["fully connected"][0]
    model = NodeModel(graph, graph.nodes[0], machine(64))
    space = NodeSpace(model, Residency((False,), False), CostWeights(), effort=1)
    smallest = space.smallest()
    assert smallest.decision.portion and smallest.cost.demand < 9000
