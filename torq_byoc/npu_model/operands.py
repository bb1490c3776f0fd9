"""Operands of a slice task as numpy views of LRAM.

The nest becomes one array axis a loop, in nest order, reduce loops last.  Where a plane or an output window
gives the lanes rows and columns, the lane loop becomes two axes.  An operand that a loop does not move has
extent 1 on its axis, so everything downstream broadcasts.  Loops of extent 1 have no axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np

from torq_byoc.errors import VerificationError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Agent, Ndl, Role, SliceTask


class Part(Enum):
    """What an axis counts: a whole loop, or the rows or columns of the lane loop."""

    WHOLE = 0
    ROW = 1
    COLUMN = 2


@dataclass(frozen=True)
class Axis:
    """One array axis of the nest."""

    loop: int
    extent: int
    part: Part = Part.WHOLE


@dataclass(frozen=True)
class Box:
    """Lanes done together: frame rows and columns; one row of all lanes when there is no frame."""

    first_row: int
    rows: int
    first_column: int
    columns: int


def refuse(what: str, why: str) -> VerificationError:
    """The error for a task that no verified program contains."""
    return VerificationError(what, where="slice task", why=why, remedy="compile the model again")


def lane_loop(task: SliceTask) -> int:
    """Position of the lane loop."""
    return next(position for position, loop in enumerate(task.loops) if loop.role is Role.LANE)


def frame_width(task: SliceTask) -> int | None:
    """Columns of the lane loop's frame, or None when the lanes are a flat run."""
    widths = {part.frame_width for part in (task.plane, task.window) if part is not None}
    if len(widths) > 1:
        raise refuse("plane and output window disagree", f"frames of {sorted(widths)} columns")
    return widths.pop() if widths else None


def lane_boxes(task: SliceTask) -> list[Box]:
    """The lanes that are written, as at most two boxes: whole rows, and what a last, partial row leaves."""
    lanes = task.loops[lane_loop(task)].extent
    width = frame_width(task)
    if width is None:
        return [Box(0, 1, 0, lanes)]
    first, columns = (task.window.first_column, task.window.columns) if task.window else (0, width)
    rows, rest = divmod(lanes, width)
    if rest >= first + columns:
        rows, rest = rows + 1, 0
    boxes = [Box(0, rows, first, columns)] if rows else []
    if rest > first:
        boxes.append(Box(rows, 1, first, rest - first))
    return boxes


def nest_axes(task: SliceTask, box: Box) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Axes of the loops that have accumulators of their own, and of the reduce loops, in nest order."""
    outer: list[Axis] = []
    reduce: list[Axis] = []
    framed = frame_width(task) is not None
    for position, loop in enumerate(task.loops):
        if loop.role is Role.LANE:
            if framed:
                outer.append(Axis(position, box.rows, Part.ROW))
            outer.append(Axis(position, box.columns, Part.COLUMN))
        elif loop.extent > 1:
            (reduce if loop.role is Role.REDUCE else outer).append(Axis(position, loop.extent))
    return tuple(outer), tuple(reduce)


def memory_view(
    lram: np.ndarray, dtype: np.dtype, address: int, shape: Sequence[int], strides: Sequence[int]
) -> np.ndarray:
    """A strided view of memory.

    Raises:
        VerificationError: it leaves the memory.
    """
    try:
        return np.ndarray(shape, dtype, lram, address, strides)
    except (ValueError, TypeError) as error:
        raise refuse(
            "a slice task addresses bytes outside LRAM",
            f"base {address}, extents {tuple(shape)}, strides {tuple(strides)}, LRAM of {lram.size} bytes",
        ) from error


@cache
def storage(dtype: DType) -> np.dtype:
    """The numpy type that moves an element's bytes: bfloat16 travels as uint16."""
    return np.dtype(np.uint16) if dtype is DType.BF16 else dtype.numpy


def numbers(raw: np.ndarray, dtype: DType) -> np.ndarray:
    """Stored elements as numbers: bfloat16 widened to fp32, others as they are."""
    if dtype is not DType.BF16:
        return raw
    words = raw.astype(np.uint32)
    words <<= 16
    return words.view(np.float32)


def axis_stride(ndl: Ndl, axis: Axis, width: int | None) -> int:
    """Bytes between neighbours along an axis, for lanes that one stride moves; ``width`` columns make a row."""
    stride = ndl.loop_stride(axis.loop)
    return stride * (width or 1) if axis.part is Part.ROW else stride


@dataclass(frozen=True)
class MemoryOperand:
    """An operand read straight from LRAM: one byte stride an axis."""

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, task: SliceTask, ndl: Ndl, axes: Sequence[Axis], box: Box) -> MemoryOperand:
        """The operand of one descriptor over the axes of a box."""
        width = frame_width(task)
        lane = ndl.loop_stride(lane_loop(task))
        start = ndl.base + lane * (box.first_row * (width or 0) + box.first_column)
        strides = tuple(axis_stride(ndl, axis, width) for axis in axes)
        shape = tuple(axis.extent if stride else 1 for axis, stride in zip(axes, strides, strict=True))
        return cls(start, ndl.dtype, shape, strides)

    def read(self, lram: np.ndarray, work: np.dtype | None = None) -> np.ndarray:
        """The numbers, extent 1 where a loop does not move the operand; ``work`` asks for a numpy type."""
        raw = memory_view(lram, storage(self.dtype), self.address, self.shape, self.strides)
        values = numbers(raw, self.dtype)
        return values if work is None else values.astype(work, copy=False)


def descriptor(task: SliceTask, agent: Agent) -> Ndl:
    """The descriptor of an agent that the task must have."""
    ndl = task.ndl(agent)
    if ndl is None:
        raise refuse("a slice task lacks a descriptor", f"{agent.name} is required")
    return ndl
