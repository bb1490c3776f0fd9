"""Limits that depend on where operands lie are the verifier's: a kernel is built before it is placed."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, Agent, AluConfig, NdlDim, Op0, Op1, Role, SliceTask
from torq_byoc.npu_model.limits import task_problems
from torq_byoc.npu_model.timing import task_cycles

CONFIG = NpuConfig()


@pytest.mark.parametrize("agent", [Agent.DEDR, Agent.DEQW])
def test_addresses_beyond_the_register_are_refused(agent: Agent) -> None:
    nest = LoopNest(
        loops=(LoopSpec("lane", 64, Role.LANE),),
        data=Operand(2048, DType.INT8, {"lane": 1}),
        result=Operand(4096, DType.INT8, {"lane": 1}),
        alu=AluConfig(Op0.DBYP, Op1.BYP),
    )
    task = build(nest, CONFIG)
    assert not task_problems(task, CONFIG)
    limit = 1 << CONFIG.limits.address_bits
    moved = tuple(replace(ndl, base=limit) if ndl.agent is agent else ndl for ndl in task.ndls)
    (problem,) = task_problems(replace(task, ndls=moved), CONFIG)
    assert agent.name in problem and "24 bits" in problem


def block(dtype: DType = DType.INT8) -> SliceTask:
    """A transposition of 64 rows of 96 bytes."""
    lanes = 96 // dtype.size
    nest = LoopNest(
        loops=(LoopSpec("lane", lanes, Role.LANE), LoopSpec("group", 64, Role.GROUP)),
        data=Operand(2048, dtype, {"lane": dtype.size, "group": 96}),
        result=Operand(16384, dtype, {"lane": 64 * dtype.size, "group": dtype.size}),
        alu=AluConfig(Op0.DBYP, Op1.CARRY),
        vector=32 // dtype.size,
        weights=32,
    )
    return build(nest, CONFIG)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_a_block_is_what_the_machine_can_do(dtype: DType) -> None:
    assert task_problems(block(dtype), CONFIG) == []
    assert task_cycles(block(dtype)) == 2 * 3 * (4 + 16)


def _dims(task: SliceTask, agent: Agent, change: Callable[[NdlDim], NdlDim]) -> SliceTask:
    return replace(
        task,
        ndls=tuple(replace(ndl, dims=tuple(map(change, ndl.dims))) if ndl.agent is agent else ndl for ndl in task.ndls),
    )


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda task: replace(task, act=ActConfig(zero_point=1)), "work for ALU or ACT"),
        (lambda task: replace(task, act=ActConfig(clip_max=5)), "work for ALU or ACT"),
        (lambda task: replace(task, alu=AluConfig(Op0.DBYP, Op1.CARRY, output=False)), "missing or without use"),
        (lambda task: replace(task, weights=64), "not 32 of 32"),
        (lambda task: replace(task, vector=64), "not 32 of 32"),
        (lambda task: replace(task, vector=4), "not 32 of 32"),
        (
            lambda task: replace(task, ndls=tuple(replace(ndl, dtype=DType.INT32) for ndl in task.ndls)),
            "integers of one or two bytes",
        ),
        (
            lambda task: _dims(task, Agent.DEDR, lambda dim: replace(dim, stride=2 * dim.stride)),
            "runs are not contiguous",
        ),
        (
            lambda task: _dims(task, Agent.DEQW, lambda dim: replace(dim, stride=2 * dim.stride)),
            "runs are not contiguous",
        ),
    ],
)
def test_a_block_moves_bytes_and_nothing_else(broken: Callable[[SliceTask], SliceTask], why: str) -> None:
    problems = task_problems(broken(block()), CONFIG)
    assert any(why in problem for problem in problems), problems
