"""What a loop nest may ask of a slice: refused when its task is built, not when a program is verified.

The limits of descriptors and registers are ``npu_model.limits``; here are those that follow from what a nest
means (hardware doc 2.1 and 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torq_byoc.errors import KernelError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActMode, Agent, Op1, SliceTask
from torq_byoc.npu_model.limits import task_problems

COMPARISONS = frozenset({Op1.MAX, Op1.MIN, Op1.GT, Op1.GE, Op1.EQ, Op1.AMAX, Op1.AMIN})
"""Folds that on floats run on all lanes only while ACT passes the bits through."""


def check_task(task: SliceTask, loop_names: Sequence[str], config: NpuConfig) -> None:
    """Check a task against every capacity of the machine; addresses are the verifier's business.

    Args:
        task: the task to check, its operands at address 0.
        loop_names: names of its loops, for the message.
        config: the machine.

    Raises:
        KernelError: names the first broken limit; all of them are in ``details``.
    """
    broken = [*task_problems(task, config), *_float_problems(task, config)]
    if broken:
        raise KernelError(
            "a loop nest exceeds what a slice can do",
            where=f"loops {', '.join(loop_names)}",
            why=broken[0],
            remedy="shrink the vector, the parallel weights, the reduction or the tile",
            details={"broken": broken},
        )


def acts_on_bits(task_bias: bool, clip_min: float, clip_max: float) -> bool:
    """Whether ACT changes values by bias or clip, rather than passing them through."""
    return task_bias or clip_min > -math.inf or clip_max < math.inf


def _float_problems(task: SliceTask, config: NpuConfig) -> Iterator[str]:
    data, weight = task.ndl(Agent.DEDR), task.ndl(Agent.DEWR)
    if data is None or task.alu is None:
        return
    if weight is not None and (
        data.dtype.is_float != weight.dtype.is_float or DType.FP32 in (data.dtype, weight.dtype)
    ):
        yield f"{data.dtype.value} x {weight.dtype.value} products; floats multiply as bf16 x bf16 only"
    if not data.dtype.is_float:
        return
    if task.act.shift and task.act.mode is not ActMode.F2I:
        yield f"a shift of {task.act.shift} on float data, which ACT does not shift"
    width = config.act_width(data.dtype, None)
    clips = acts_on_bits(task.ndl(Agent.DEBR) is not None, task.act.clip_min, task.act.clip_max)
    if task.alu.op1 in COMPARISONS and clips and task.vector > width:
        yield f"float {task.alu.op1.name} with bias or clip on {task.vector} lanes, at most {width}"


def _multiplies(data: DType, weight: DType) -> bool:
    if data.is_float or weight.is_float:
        return data is weight is DType.BF16
    return True
