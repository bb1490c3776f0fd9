"""Differences between slice tasks: which class each field belongs to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from torq_byoc.accuracy.deviation import Stage
from torq_byoc.accuracy.programs.task_faults import is_misplaced, task_fault
from torq_byoc.kernels.kernel import Placement, Region
from torq_byoc.kernels.unary import unary_task
from torq_byoc.kernels.views import View
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, Agent, SliceTask


def _task() -> SliceTask:
    """A copy of 4 rows of 16 bytes from 1280 to 2048."""
    source, target = View(1280, DType.INT8, (16, 1)), View(2048, DType.INT8, (16, 1))
    return unary_task(target, source, None, (4, 16), ActConfig(clip_min=-128, clip_max=127), NpuConfig())


def _moved(agent: Agent, step: int) -> Callable[[SliceTask], SliceTask]:
    return lambda task: replace(
        task, ndls=tuple(replace(n, base=n.base + step) if n.agent is agent else n for n in task.ndls)
    )


def _act(**fields: int) -> Callable[[SliceTask], SliceTask]:
    return lambda task: replace(task, act=replace(task.act, **fields))


@pytest.mark.parametrize(
    ("change", "stage", "words"),
    [
        (_moved(Agent.DEDR, 1), Stage.TILING, "DEDR.base is 1281, meant is 1280"),
        (_moved(Agent.DEQW, -1), Stage.TILING, "DEQW.base is 2047, meant is 2048"),
        (_act(shift=3), Stage.CODE_GENERATION, "act.shift is 3, meant is 0"),
        (_act(zero_point=5), Stage.CODE_GENERATION, "act.zero_point is 5, meant is 0"),
        (_act(clip_max=100), Stage.CODE_GENERATION, "act.clip_max is 100, meant is 127"),
        (lambda task: replace(task, vector=8), Stage.TILING, "vector is 8"),
        (lambda task: replace(task, alu=replace(task.alu, clear=False)), Stage.TILING, "alu.clear is False"),
    ],
)
def test_a_field_says_where_or_what(change: Callable[[SliceTask], SliceTask], stage: Stage, words: str) -> None:
    fault = task_fault([change(_task())], [_task()])
    assert fault is not None
    assert fault.stage is stage
    assert words in fault.detail


def test_equal_tasks_have_no_fault_and_missing_ones_do() -> None:
    assert task_fault([_task()], [_task()]) is None
    fault = task_fault([], [_task()])
    assert fault is not None
    assert fault.stage is Stage.TILING


@pytest.mark.parametrize(("rows", "misplaced"), [(4, False), (3, True), (5, True)])
def test_tasks_are_misplaced_when_they_write_more_or_less_than_their_region(rows: int, misplaced: bool) -> None:
    output = Placement(2048, Region((0, 0), (8, 16)), (16, 1), DType.INT8)
    assert is_misplaced([_task()], output, Region((0, 0), (rows, 16))) is misplaced
