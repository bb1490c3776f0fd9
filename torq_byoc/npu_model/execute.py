"""Vectorised execution of slice tasks.

``plan`` turns a task into a form that depends on its descriptors alone (operand views, ALU strategy), so a task
that runs many times is analysed once.  A task reads all of its operands before it writes: descriptors whose
results overlap operands of other points have no defined meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from torq_byoc.npu_model.alu import AluPlan, accumulates_float
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, Agent, AluConfig, Op0, Op1, SliceTask
from torq_byoc.npu_model.numerics import apply_act
from torq_byoc.npu_model.operands import (
    Axis,
    Box,
    MemoryOperand,
    descriptor,
    lane_boxes,
    nest_axes,
    refuse,
)
from torq_byoc.npu_model.operands_plane import PlaneOperand
from torq_byoc.npu_model.operands_result import ResultOperand
from torq_byoc.npu_model.partials import CARRIED_FOLDS


@dataclass(frozen=True)
class BiasOperand:
    """The B operand: int32 (bias, scale) pairs, or single fp32 biases; extent 1 where a loop does not move it."""

    bias: MemoryOperand
    scale: MemoryOperand | None

    @classmethod
    def of(cls, task: SliceTask, axes: tuple[Axis, ...], box: Box, is_float: bool) -> BiasOperand | None:
        """The operand of DEBR over the outer axes of a box; None when the task has none."""
        ndl = task.ndl(Agent.DEBR)
        if ndl is None:
            return None
        if (ndl.dtype is DType.FP32) != is_float:
            kind = "float" if is_float else "integer"
            raise refuse("the bias does not fit the accumulators", f"{ndl.dtype.value} bias, {kind} accumulators")
        bias = MemoryOperand.of(task, ndl, axes, box)
        if is_float:
            return cls(bias, None)
        return cls(bias, MemoryOperand(bias.address + 4, bias.dtype, bias.shape, bias.strides))


@dataclass(frozen=True)
class Pass:
    """One box of a task's lanes, from operands to results."""

    data: MemoryOperand | PlaneOperand
    weight: MemoryOperand | None
    bias: BiasOperand | None
    result: ResultOperand | None
    alu: AluPlan

    def sums(self, lram: np.ndarray, is_float: bool) -> np.ndarray:
        """Read the operands and compute the accumulators."""
        planar = isinstance(self.data, PlaneOperand)
        data = self.data.read(lram, self.alu.work if planar else None)
        acc = self.alu.run(data, self.weight.read(lram) if self.weight else None)
        if not is_float and acc.dtype.kind == "f":
            acc = acc.astype(np.int32 if acc.dtype == np.float32 else np.int64)
        return acc

    def finish(
        self, lram: np.ndarray, acc: np.ndarray, act: ActConfig, is_float: bool, table: np.ndarray | None
    ) -> None:
        """Turn accumulators into results and write them; nothing for a task without output."""
        if self.result is None:
            return
        bias: np.ndarray | float = self.bias.bias.read(lram) if self.bias else 0
        scale = self.bias.scale.read(lram) if self.bias and self.bias.scale else None
        self.result.write(lram, apply_act(acc, act, bias, scale, self.result.dtype, is_float, table))


@dataclass
class Pram:
    """What a slice keeps between tasks: partial sums, an array for every box of lanes; None when it keeps none.

    ``scalar`` is the scalar interpreter's PRAM: a number for every point of the nest.
    """

    sums: list[np.ndarray] | None = None
    scalar: dict[tuple[int, ...], float] = field(default_factory=dict)

    def continued(self, own: list[np.ndarray], op1: Op1) -> list[np.ndarray]:
        """The partial sums with a task's own folded into them.

        Raises:
            VerificationError: there are none.
        """
        if self.sums is None:
            raise refuse("a slice task continues from partial sums", "no task left any in PRAM")
        wide = [sums if sums.dtype.kind == "f" or op1 is not Op1.ACC else sums.astype(np.int64) for sums in own]
        return [CARRIED_FOLDS[op1](before, sums) for before, sums in zip(self.sums, wide, strict=True)]


@dataclass(frozen=True)
class TaskPlan:
    """An analysed slice task, ready to run any number of times."""

    passes: tuple[Pass, ...]
    alu: AluConfig
    act: ActConfig
    is_float: bool
    table: np.ndarray | None

    def run(self, lram: np.ndarray, pram: Pram) -> None:
        """Execute the task on a memory of uint8 elements and the partial sums of its slice.

        Raises:
            VerificationError: the task leaves the memory, or continues from partial sums that are not there.
        """
        with np.errstate(all="ignore"):
            if self.alu.clear and self.alu.output:
                for part in self.passes:
                    part.finish(lram, part.sums(lram, self.is_float), self.act, self.is_float, self.table)
                return
            sums = [part.sums(lram, self.is_float) for part in self.passes]
            if not self.alu.clear:
                sums = pram.continued(sums, self.alu.op1)
            pram.sums = None if self.alu.output else sums
            for part, acc in zip(self.passes, sums, strict=True):
                part.finish(lram, acc, self.act, self.is_float, self.table)


@dataclass(frozen=True)
class FillPlan:
    """A fill: the constant as an element of the output type, and where it goes."""

    value: np.ndarray
    results: tuple[ResultOperand, ...]

    def run(self, lram: np.ndarray, pram: Pram) -> None:
        """Execute the task on a memory of uint8 elements; no partial sums take part."""
        del pram
        for result in self.results:
            result.write(lram, self.value)


def execute_task(task: SliceTask, lram: np.ndarray, pram: Pram | None = None) -> None:
    """Execute one slice task.

    Args:
        task: the task.
        lram: uint8 array, addressed from 0; written in place.
        pram: partial sums of the slice, changed in place; by default it has none.

    Raises:
        VerificationError: the task is malformed or leaves the memory.
    """
    plan(task).run(lram, pram or Pram())


def plan(task: SliceTask) -> TaskPlan | FillPlan:
    """Analyse a task.

    Raises:
        VerificationError: the task is malformed.
    """
    if task.fill_value is not None:
        return _plan_fill(task, task.fill_value)
    if task.alu is None:
        raise refuse("a slice task computes without an ALU configuration", "neither alu nor fill_value is set")
    is_float = accumulates_float(task.alu, descriptor(task, Agent.DEDR).dtype)
    passes = tuple(_plan_pass(task, box, is_float) for box in lane_boxes(task))
    table = None if task.table is None else np.array(task.table, np.int16)
    return TaskPlan(passes, task.alu, task.act, is_float, table)


def _plan_pass(task: SliceTask, box: Box, is_float: bool) -> Pass:
    assert task.alu is not None
    outer, reduce = nest_axes(task, box)
    axes = outer + reduce
    source = descriptor(task, Agent.DEDR)
    data: MemoryOperand | PlaneOperand
    if task.plane is None:
        data = MemoryOperand.of(task, source, axes, box)
    else:
        data = PlaneOperand.of(task, task.plane, source, axes, box)
    weight = None
    if task.alu.op0 is Op0.MUL:
        weight = MemoryOperand.of(task, descriptor(task, Agent.DEWR), axes, box)
    alu = AluPlan.of(
        task.alu,
        source.dtype,
        weight.dtype if weight else None,
        data.shape,
        weight.shape if weight else None,
        tuple(axis.extent for axis in reduce),
    )
    result = ResultOperand.of(task, descriptor(task, Agent.DEQW), outer, box) if task.alu.output else None
    return Pass(data, weight, BiasOperand.of(task, outer, box, is_float), result, alu)


def _plan_fill(task: SliceTask, constant: int) -> FillPlan:
    ndl = descriptor(task, Agent.DEQW)
    results = tuple(ResultOperand.of(task, ndl, nest_axes(task, box)[0], box) for box in lane_boxes(task))
    return FillPlan(fill_element(constant, ndl.dtype), results)


def fill_element(constant: int, dtype: DType) -> np.ndarray:
    """The element that a fill writes: the low byte, or the 16 bits, repeated in both halves of four-byte types."""
    word = np.full(2, constant & 0xFFFF, "<u2")
    return word.view(np.uint8)[:1].view(dtype.numpy) if dtype.size == 1 else word.view(dtype.numpy)[:1]
