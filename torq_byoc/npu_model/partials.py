"""Partial sums that stay in PRAM between the tasks of a slice (no_p_clear and no_p_output, hardware doc 3.1).

PRAM holds one set of accumulators, those of one vector and its group members.  A task that continues from it or
leaves something in it therefore runs its reduce loops once, for one set; the tasks that a reduction is divided
between agree about what each accumulator stands for (``Layout``); and no other task of that slice comes between
them.  Other slices have a PRAM of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Agent, Op0, Op1, Role, SliceTask

CARRIED_FOLDS = {Op1.ACC: np.add, Op1.MAX: np.maximum, Op1.MIN: np.minimum}
"""Folds whose whole state is P, so that they can be continued, with what continues them."""


@dataclass(frozen=True)
class Layout:
    """What the accumulators of a task stand for: the fold, the types, lanes and members, the lanes' frame and
    which of its columns count."""

    op0: Op0
    op1: Op1
    data: DType | None
    weight: DType | None
    vector: int
    weights: int
    loops: tuple[tuple[Role, int], ...]
    frame_width: int
    columns: tuple[int, int]

    @classmethod
    def of(cls, task: SliceTask) -> Layout:
        """The layout of a computing task."""
        assert task.alu is not None
        data, weight = task.ndl(Agent.DEDR), task.ndl(Agent.DEWR)
        return cls(
            task.alu.op0,
            task.alu.op1,
            data.dtype if data else None,
            weight.dtype if weight else None,
            task.vector,
            task.weights,
            tuple((loop.role, loop.extent) for loop in task.loops if loop.role is not Role.REDUCE),
            task.plane.frame_width if task.plane else 0,
            (task.window.first_column, task.window.columns) if task.window else (0, 0),
        )


def carry_problems(task: SliceTask) -> Iterator[str]:
    """Why partial sums cannot enter or leave a task whose nest is well formed; nothing for other tasks."""
    if not task.carries or task.alu is None:
        return
    if task.fill_value is not None:
        yield "a fill has no partial sums to carry"
    if task.alu.op1 not in CARRIED_FOLDS:
        yield f"{task.alu.op1.name} cannot be continued by another task"
    units = {Role.LANE: task.vector, Role.GROUP: task.weights}
    sets = math.prod(-(-loop.extent // units.get(loop.role, 1)) for loop in task.loops if loop.role is not Role.REDUCE)
    if sets != 1:
        yield f"{sets} sets of accumulators in a task that carries partial sums, PRAM keeps 1"


class CarriedSums:
    """Follows the PRAM of one slice through its tasks; reports sums that are lost or never were there."""

    def __init__(self) -> None:
        self._left: Layout | None = None

    def task(self, task: SliceTask) -> list[str]:
        """Take the next task of the slice, and say what is wrong with its partial sums."""
        left, self._left = self._left, None
        if left is None and not task.carries:
            return []
        found = []
        clears = task.alu is None or task.alu.clear
        if left is not None and clears:
            found.append("it discards partial sums that the task before left in PRAM")
        if task.alu is None:
            return found
        if not clears and left is None:
            found.append("it continues from partial sums that no task left in PRAM")
        elif not clears and left != Layout.of(task):
            found.append("it continues from partial sums of other accumulators than its own")
        if not task.alu.output:
            self._left = Layout.of(task)
        return found

    def finish(self) -> Iterator[str]:
        """What is wrong once the slice has run its last task."""
        if self._left is not None:
            yield "partial sums are left in PRAM at the end"
