"""Limits that depend on where operands lie are the verifier's: a kernel is built before it is placed."""

import pytest
from msgspec.structs import replace

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Agent, AluConfig, Op0, Op1, Role
from torq_byoc.npu_model.limits import task_problems

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
