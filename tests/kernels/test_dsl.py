"""The kernel DSL: which descriptors a nest becomes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from torq_byoc.errors import KernelError
from torq_byoc.kernels.derive import Derivation
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.limits import TaskChecks, check_task
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.isa import ActConfig, ActMode, Agent, AluConfig, DimKind, Op0, Op1, Plane, Role, Tag

CONFIG = NpuConfig()
I8 = DType.INT8


def outer_product(lanes: int = 100, weights: int = 4, channels: int = 12, data: DType = I8) -> LoopNest:
    """A pointwise convolution: result[w, lane] = sum over c of data[c, lane] * weight[c, w]."""
    return LoopNest(
        loops=(
            LoopSpec("pixel", lanes, Role.LANE),
            LoopSpec("member", weights, Role.GROUP),
            LoopSpec("channel", channels, Role.REDUCE),
        ),
        data=Operand(0, data, {"pixel": data.size, "channel": lanes * data.size}),
        weight=Operand(0x8000, I8, {"member": 1, "channel": weights}),
        bias=Operand(0x9000, DType.INT32, {"member": 8}),
        result=Operand(0xA000, I8, {"pixel": 1, "member": lanes}),
        alu=AluConfig(Op0.MUL, Op1.ACC),
        weights=weights,
    )


def cycles(nest: LoopNest) -> dict[Agent, int]:
    return {ndl.agent: ndl.cycles() for ndl in build(nest, CONFIG).ndls}


def test_every_agent_of_an_outer_product() -> None:
    """Two vectors of 64 lanes, 12 reduce steps; ACT drains 4 x 64 results, 16 a cycle."""
    found = cycles(outer_product())
    assert found[Agent.CEDR] == found[Agent.CEPR] == found[Agent.CEWR] == 24
    assert found[Agent.DEDR] == 24
    assert found[Agent.DEWR] == 2 * 2, "eight reduce steps of four weights fill the weight bus"
    assert found[Agent.ACPR] == 2 * 4 * 4
    assert found[Agent.DEQW] == 2 * 4
    assert found[Agent.DEBR] == 1, "the four pairs stay in their registers"


@pytest.mark.parametrize(
    ("data", "weights", "vector"),
    [(I8, 4, 64), (I8, 8, 32), (I8, 16, 16), (DType.INT16, 4, 32), (DType.INT32, 4, 16)],
)
def test_the_vector_is_the_widest_that_the_types_allow(data: DType, weights: int, vector: int) -> None:
    assert build(outer_product(weights=weights, data=data), CONFIG).vector == vector


def test_a_short_lane_loop_takes_a_short_vector() -> None:
    assert build(outer_product(lanes=20), CONFIG).vector == 32


def test_an_operand_that_does_not_move_is_loaded_once() -> None:
    nest = outer_product()
    still = replace(nest, weight=replace(nest.weight, strides={"member": 1}))
    assert cycles(still)[Agent.DEWR] == 1


def test_gathered_lanes_cost_a_load_for_four() -> None:
    nest = outer_product(lanes=64, channels=1)
    gathered = replace(nest, data=replace(nest.data, strides={"pixel": 9, "channel": 1}))
    assert cycles(gathered)[Agent.DEDR] == 16


def test_scattered_results_cost_a_store_for_two() -> None:
    nest = outer_product(lanes=64)
    scattered = replace(nest, result=replace(nest.result, strides={"pixel": 4, "member": 1}))
    assert cycles(scattered)[Agent.DEQW] == 4 * 32


def test_three_taps_of_a_row_share_a_load() -> None:
    nest = LoopNest(
        loops=(
            LoopSpec("pixel", 64, Role.LANE, Tag.FLAT),
            LoopSpec("i", 5, Role.REDUCE, Tag.KERNEL_ROW),
            LoopSpec("j", 7, Role.REDUCE, Tag.KERNEL_COLUMN),
        ),
        data=Operand(0, I8),
        result=Operand(0x1000, I8, {"pixel": 1}),
        alu=AluConfig(Op0.DBYP, Op1.MAX),
        plane=Plane(8, 8, 8, 8, pad_top=2, pad_left=3),
    )
    assert cycles(nest)[Agent.DEDR] == 5 * 3
    strided = replace(nest, plane=replace(nest.plane, stride_x=2, phase_stride_x=64))
    assert cycles(strided)[Agent.DEDR] == 5 * 7


def test_a_weight_for_every_lane_is_bounded_by_the_weight_memory() -> None:
    nest = LoopNest(
        loops=(LoopSpec("x", 256, Role.LANE),),
        data=Operand(0, I8, {"x": 1}),
        weight=Operand(0x1000, I8, {"x": 1}),
        result=Operand(0x2000, I8, {"x": 1}),
        alu=AluConfig(Op0.MUL, Op1.ACC),
    )
    assert build(nest, CONFIG).vector == CONFIG.weight_ram


def test_entries_for_every_lane_slow_act_down() -> None:
    nest = replace(outer_product(lanes=64), bias=Operand(0x9000, DType.INT32, {"pixel": 8}))
    found = cycles(nest)
    assert found[Agent.ACPR] == 4 * 16 and found[Agent.DEBR] == 16


def test_loops_of_one_iteration_leave_the_task() -> None:
    nest = outer_product(channels=1)
    wrapped = replace(nest, loops=(LoopSpec("n", 1), *nest.loops))
    assert [loop.role for loop in build(wrapped, CONFIG).loops] == [Role.LANE, Role.GROUP]


def test_a_built_task_computes_what_its_nest_says() -> None:
    nest = outer_product(lanes=10, weights=3, channels=5)
    rng = np.random.default_rng(0)
    lram = rng.integers(0, 256, 1 << 16, dtype=np.uint8)
    lram[0x9000:0x9020] = np.array([[1, 1], [2, 1], [3, 1], [0, 0]], np.int32).view(np.uint8).reshape(-1)
    data = lram[:50].view(np.int8).reshape(5, 10).astype(int)
    weight = lram[0x8000 : 0x8000 + 15].view(np.int8).reshape(5, 3).astype(int)
    task = build(replace(nest, act=ActConfig(shift=7)), CONFIG)
    execute_task(task, lram)
    expected = np.clip((weight.T @ data + np.array([[1], [2], [3]]) + 64) >> 7, -128, 127)
    np.testing.assert_array_equal(lram[0xA000 : 0xA000 + 30].view(np.int8).reshape(3, 10), expected)


def broken_nests() -> dict[str, tuple[LoopNest, str]]:
    nest = outer_product()
    lane, member, channel = nest.loops
    floats = LoopNest(
        loops=(LoopSpec("x", 64, Role.LANE), LoopSpec("k", 2, Role.REDUCE)),
        data=Operand(0, DType.BF16, {"x": 2, "k": 128}),
        result=Operand(0x1000, DType.BF16, {"x": 2}),
        alu=AluConfig(Op0.DBYP, Op1.MAX),
        act=ActConfig(clip_min=0.0),
        vector=32,
    )
    flat = Plane(4, 25, 25, 25, pad_left=2)
    planar = replace(
        nest, plane=flat, data=Operand(0, I8), loops=(lane, member, replace(channel, tag=Tag.KERNEL_COLUMN, extent=3))
    )
    return {
        "accumulators": (replace(nest, vector=64, weights=8), "lanes of int8, at most 32"),
        "parallel weights": (outer_product(weights=32), "32 weights in parallel, at most 16"),
        "reduction": (outer_product(channels=65537), "65537 terms, at most 65536"),
        "wide products": (
            replace(outer_product(data=DType.INT32), weight=Operand(0x8000, DType.INT16, {"member": 2, "channel": 8})),
            "int32 x int16 products, at most 4 byte products",
        ),
        "stride": (replace(nest, data=replace(nest.data, strides={"pixel": 1, "channel": 1 << 23})), "a stride of"),
        "shift": (replace(nest, act=ActConfig(shift=64)), "a shift of 64, at most 63"),
        "zero point": (replace(nest, act=ActConfig(zero_point=40_000)), "zero point 40000, 16 bits signed"),
        "left border": (planar, "left padding 2 of a kernel of 3 columns, one of [0, 1]"),
        "float clip": (floats, "float MAX with bias or clip on 32 lanes, at most 8"),
        "float shift": (replace(floats, act=ActConfig(shift=3)), "a shift of 3 on float data"),
        "mixed product": (
            replace(nest, data=Operand(0, DType.BF16, {"pixel": 2, "channel": 200}), vector=16),
            "bfloat16 x int8 products",
        ),
        "two lane loops": (replace(nest, loops=(lane, replace(lane, name="again"), member, channel)), "one lane loop"),
        "reduce outside": (replace(nest, loops=(channel, lane, member)), "reduce loops stand inside"),
        "same name": (replace(nest, loops=(lane, member, channel, replace(channel))), "two loops have one name"),
        "unknown stride": (replace(nest, data=Operand(0, I8, {"pixle": 1})), "['pixle'], which are no loops"),
        "empty loop": (replace(nest, loops=(replace(lane, extent=0), member, channel)), "no iterations"),
        "no data": (replace(nest, data=None), "needs a data operand"),
        "no weight": (replace(nest, weight=None), "a multiplication needs one"),
        "no table": (replace(nest, act=ActConfig(mode=ActMode.TABLE)), "that mode needs one"),
    }


@pytest.mark.parametrize("name", broken_nests())
def test_broken_rules_and_limits_are_named(name: str) -> None:
    nest, why = broken_nests()[name]
    with pytest.raises(KernelError) as caught:
        check_task(build(nest, CONFIG), CONFIG)
    assert why in str(caught.value)
    assert caught.value.where.startswith("loops ") and caught.value.remedy


def test_high_dimensions_cost_cycles_and_low_ones_do_not() -> None:
    task = build(outer_product(), CONFIG)
    dedr = task.ndl(Agent.DEDR)
    assert [(dim.kind, dim.count, dim.stride) for dim in dedr.dims] == [
        (DimKind.H, 2, 64),
        (DimKind.H, 12, 100),
        (DimKind.L, 64, 1),
    ]


@pytest.mark.parametrize("channels", [12, 7])
@pytest.mark.parametrize("shift", [0, 0x40])
def test_nests_that_differ_in_addresses_and_values_alone_become_tasks_that_do(channels: int, shift: int) -> None:
    """Descriptors are derived once for such nests: here they are held against a derivation of their own."""
    nest = outer_product(channels=channels)
    act = ActConfig(clip_min=-5, clip_max=5.0)
    assert nest.data and nest.weight and nest.bias
    moved = replace(
        nest,
        data=replace(nest.data, base=shift),
        weight=replace(nest.weight, base=0x8000 + 3 * shift),
        bias=replace(nest.bias, base=0x9000 + 8 * shift),
        result=replace(nest.result, base=0xA000 + shift),
        act=act,
    )
    build(nest, CONFIG)
    task = build(moved, CONFIG)
    assert task == Derivation(moved, CONFIG).task()
    assert (type(task.act.clip_min), type(task.act.clip_max)) == (int, float), "values keep their own types"


def test_a_task_beyond_the_limits_is_refused_every_time() -> None:
    checks = TaskChecks(CONFIG)
    checks.check([build(outer_product(), CONFIG)])
    beyond = build(replace(outer_product(), vector=128), CONFIG)
    for _ in range(2):
        with pytest.raises(KernelError, match="lanes"):
            checks.check([beyond])
