"""What a loop nest may ask of a slice: refused when programs are cut, not when they are verified.

Tasks that are built to be priced are not checked: a search makes many more of them than a program has.  The
limits of descriptors and registers are ``npu_model.limits``; here are those that follow from what a nest means
(hardware doc 2.1 and 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator

from torq_byoc.errors import KernelError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.footprint import form_of, without_bases
from torq_byoc.npu_model.isa import ActMode, Agent, Op1, SliceTask
from torq_byoc.npu_model.limits import task_problems

COMPARISONS = frozenset({Op1.MAX, Op1.MIN, Op1.GT, Op1.GE, Op1.EQ, Op1.AMAX, Op1.AMIN})
"""Folds that on floats run on all lanes only while ACT passes the bits through."""


class TaskChecks:
    """Checks tasks, those that differ in nothing but the places of their operands once.

    Args:
        config: the machine.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        self._passed: set[Hashable] = set()

    def check(self, tasks: Iterable[SliceTask]) -> None:
        """Check each of some tasks.

        Raises:
            KernelError: as ``check_task``.
        """
        for task in tasks:
            form = form_of(task)
            if form not in self._passed:
                check_task(task, self._config)
                self._passed.add(form)


def check_task(task: SliceTask, config: NpuConfig) -> None:
    """Check a task against every capacity of the machine; addresses are the verifier's business.

    Raises:
        KernelError: names the first broken limit; all of them are in ``details``.
    """
    broken = [*task_problems(without_bases(task), config), *_float_problems(task, config)]
    if broken:
        raise KernelError(
            "a loop nest exceeds what a slice can do",
            where="loops " + ", ".join(f"{loop.role.name.lower()}[{loop.extent}]" for loop in task.loops),
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
