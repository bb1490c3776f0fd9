"""Operands of a slice task as numpy views of LRAM.

The nest becomes one array axis a loop, in nest order, reduce loops last.  Where a plane or an output window
gives the lanes rows and columns, the lane loop becomes two axes.  An operand that a loop does not move has
extent 1 on its axis, so everything downstream broadcasts.  Loops of extent 1 have no axis.

A planar operand is copied once into a padded plane at full resolution; kernel rows, kernel columns, pixel rows
and pixel columns are then strides of one sliding-window view.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from torq_byoc.errors import VerificationError
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Agent, Ndl, OutputWindow, Plane, Role, SliceTask, Tag


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


def _axis_stride(ndl: Ndl, axis: Axis, width: int | None) -> int:
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
        strides = tuple(_axis_stride(ndl, axis, width) for axis in axes)
        shape = tuple(axis.extent if stride else 1 for axis, stride in zip(axes, strides, strict=True))
        return cls(start, ndl.dtype, shape, strides)

    def read(self, lram: np.ndarray, work: np.dtype | None = None) -> np.ndarray:
        """The numbers, extent 1 where a loop does not move the operand; ``work`` asks for a numpy type."""
        raw = memory_view(lram, storage(self.dtype), self.address, self.shape, self.strides)
        values = numbers(raw, self.dtype)
        return values if work is None else values.astype(work, copy=False)


@dataclass(frozen=True)
class _Patch:
    """Part of a padded plane that one phase plane in memory fills."""

    rows: slice
    columns: slice
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class PlaneOperand:
    """A planar operand: padded planes, filled patch by patch, seen through a sliding window.

    Attributes:
        padded: shape of the planes: the axes that move the operand beside the plane logic, rows, columns.
        bordered: some elements of ``padded`` lie outside the plane and read as ``pad_value``.
        shape, steps: extent and distance (in elements of ``padded``) on every axis of the nest.
    """

    dtype: DType
    padded: tuple[int, ...]
    bordered: bool
    pad_value: float
    patches: tuple[_Patch, ...]
    shape: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, task: SliceTask, plane: Plane, ndl: Ndl, axes: Sequence[Axis], box: Box) -> PlaneOperand:
        """The operand of DEDR over the axes of a box."""
        kernel_rows, kernel_columns = _kernel_extents(task, axes)
        top = box.first_row * plane.stride_y - plane.pad_top
        left = box.first_column * plane.stride_x - plane.pad_left
        height = (box.rows - 1) * plane.stride_y + (kernel_rows - 1) * plane.dilation_y + 1
        width = (box.columns - 1) * plane.stride_x + (kernel_columns - 1) * plane.dilation_x + 1
        others = [axis for axis in axes if not _is_planar(task, axis) and ndl.loop_stride(axis.loop)]
        rows = _Span.of(top, height, plane.height, plane.stride_y, kernel_rows, plane.dilation_y)
        columns = _Span.of(left, width, plane.width, plane.stride_x, kernel_columns, plane.dilation_x)
        _check_pad(plane, ndl.dtype)
        padded = (*(axis.extent for axis in others), height, width)
        extents, steps = _window_steps(task, plane, axes, others, padded)
        return cls(
            ndl.dtype,
            padded,
            rows.bordered or columns.bordered,
            plane.pad_value,
            tuple(_patches(plane, ndl, others, rows, columns)),
            extents,
            steps,
        )

    def read(self, lram: np.ndarray, work: np.dtype | None = None) -> np.ndarray:
        """The numbers as a sliding-window view of planes of type ``work`` (the operand's own when None)."""
        if work is None:
            work = np.dtype(np.float32) if self.dtype is DType.BF16 else self.dtype.numpy
        planes = np.full(self.padded, self.pad_value, work) if self.bordered else np.empty(self.padded, work)
        for patch in self.patches:
            raw = memory_view(lram, storage(self.dtype), patch.address, patch.shape, patch.strides)
            planes[..., patch.rows, patch.columns] = numbers(raw, self.dtype)
        strides = [step * planes.itemsize for step in self.steps]
        return np.ndarray(self.shape, work, planes, 0, strides)


def _is_planar(task: SliceTask, axis: Axis) -> bool:
    """Whether the plane logic, not a stride, moves the operand along this axis."""
    return axis.part is not Part.WHOLE or task.loops[axis.loop].tag in (Tag.KERNEL_ROW, Tag.KERNEL_COLUMN)


def _kernel_extents(task: SliceTask, axes: Sequence[Axis]) -> tuple[int, int]:
    """Extents of the kernel-row and kernel-column loops; 1 where there is none."""
    extents = []
    for tag in (Tag.KERNEL_ROW, Tag.KERNEL_COLUMN):
        found = [axis.extent for axis in axes if axis.part is Part.WHOLE and task.loops[axis.loop].tag is tag]
        if len(found) > 1:
            raise refuse(f"a plane with {len(found)} {tag.name} loops", "the plane logic follows one")
        extents.append(found[0] if found else 1)
    return extents[0], extents[1]


def _check_pad(plane: Plane, dtype: DType) -> None:
    if dtype.is_float:
        return
    low, high = dtype.integer_range
    if not low <= plane.pad_value <= high:
        raise refuse("the pad value does not fit its operand", f"{plane.pad_value} in {dtype.value}")


@dataclass(frozen=True)
class _Span:
    """Rows (or columns) of a padded plane: its first coordinate, the coordinates inside the plane, the phases read."""

    first: int
    inside: range
    bordered: bool
    stride: int
    phases: tuple[int, ...]

    @classmethod
    def of(cls, first: int, length: int, limit: int, stride: int, kernel: int, dilation: int) -> _Span:
        inside = range(max(first, 0), max(0, min(first + length, limit)))
        phases = sorted({(first + tap * dilation) % stride for tap in range(min(kernel, stride))})
        return cls(first, inside, len(inside) < length, stride, tuple(phases))

    def cuts(self) -> Iterator[tuple[int, int, slice, int]]:
        """For each phase: phase, first index in its phase plane, place in the padded plane, count."""
        for phase in self.phases:
            start = self.inside.start + (phase - self.inside.start) % self.stride
            count = len(range(start, self.inside.stop, self.stride))
            if count:
                begin = start - self.first
                yield (
                    phase,
                    start // self.stride,
                    slice(begin, begin + (count - 1) * self.stride + 1, self.stride),
                    count,
                )


def _patches(plane: Plane, ndl: Ndl, others: Sequence[Axis], rows: _Span, columns: _Span) -> Iterator[_Patch]:
    extents = tuple(axis.extent for axis in others)
    strides = tuple(ndl.loop_stride(axis.loop) for axis in others)
    size = ndl.dtype.size
    for phase_y, row, row_slice, row_count in rows.cuts():
        for phase_x, column, column_slice, column_count in columns.cuts():
            address = (
                ndl.base
                + phase_y * plane.phase_stride_y
                + phase_x * plane.phase_stride_x
                + row * plane.row_stride
                + column * size
            )
            yield _Patch(
                row_slice,
                column_slice,
                address,
                (*extents, row_count, column_count),
                (*strides, plane.row_stride, size),
            )


def _window_steps(
    task: SliceTask, plane: Plane, axes: Sequence[Axis], others: Sequence[Axis], padded: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and distances, in elements of the padded planes, of the window view on every axis."""
    width = padded[-1]
    extents, steps = [], []
    for axis in axes:
        tag = task.loops[axis.loop].tag
        if axis.part is Part.ROW:
            step = plane.stride_y * width
        elif axis.part is Part.COLUMN:
            step = plane.stride_x
        elif tag is Tag.KERNEL_ROW:
            step = plane.dilation_y * width
        elif tag is Tag.KERNEL_COLUMN:
            step = plane.dilation_x
        else:
            step = math.prod(padded[others.index(axis) + 1 :]) if axis in others else 0
        extents.append(axis.extent if step else 1)
        steps.append(step)
    return tuple(extents), tuple(steps)


@dataclass(frozen=True)
class _Write:
    """One strided store: the part of the result that goes there, the address, the strides."""

    part: tuple[slice, ...]
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class ResultOperand:
    """Where DEQW puts the results of a box: one store, or one a phase plane."""

    dtype: DType
    shape: tuple[int, ...]
    writes: tuple[_Write, ...]

    @classmethod
    def of(cls, task: SliceTask, ndl: Ndl, axes: Sequence[Axis], box: Box) -> ResultOperand:
        """The operand of DEQW over the outer axes of a box."""
        shape = tuple(axis.extent for axis in axes)
        if task.window is None:
            width = frame_width(task)
            lane = ndl.loop_stride(lane_loop(task))
            start = ndl.base + lane * (box.first_row * (width or 0) + box.first_column)
            strides = tuple(_axis_stride(ndl, axis, width) for axis in axes)
            everything = (slice(None),) * len(axes)
            return cls(ndl.dtype, shape, (_Write(everything, start, shape, strides),))
        return cls(ndl.dtype, shape, tuple(_window_writes(task.window, ndl, axes, box)))

    def write(self, lram: np.ndarray, values: np.ndarray) -> None:
        """Store results of the operand's type; extents of 1 are repeated."""
        raw = values.view(np.uint16) if self.dtype is DType.BF16 else values
        if len(self.writes) > 1:
            raw = np.broadcast_to(raw, self.shape)
        for target in self.writes:
            view = memory_view(lram, storage(self.dtype), target.address, target.shape, target.strides)
            view[...] = raw[target.part] if len(self.writes) > 1 else raw


def _window_writes(window: OutputWindow, ndl: Ndl, axes: Sequence[Axis], box: Box) -> Iterator[_Write]:
    for phase_y in range(window.stride_y):
        skip = (phase_y - box.first_row) % window.stride_y
        rows = slice(skip, None, window.stride_y)
        for phase_x in range(window.stride_x):
            columns = slice(phase_x, None, window.stride_x)
            address = (
                ndl.base
                + phase_y * window.phase_stride_y
                + phase_x * window.phase_stride_x
                + (box.first_row + skip) // window.stride_y * window.row_stride
            )
            part, shape, strides = [], [], []
            for axis in axes:
                taken, stride = slice(None), ndl.loop_stride(axis.loop)
                if axis.part is Part.ROW:
                    taken, stride = rows, window.row_stride
                elif axis.part is Part.COLUMN:
                    taken, stride = columns, window.column_stride
                part.append(taken)
                shape.append(len(range(axis.extent)[taken]))
                strides.append(stride)
            if all(shape):
                yield _Write(tuple(part), address, tuple(shape), tuple(strides))


def descriptor(task: SliceTask, agent: Agent) -> Ndl:
    """The descriptor of an agent that the task must have."""
    ndl = task.ndl(agent)
    if ndl is None:
        raise refuse("a slice task lacks a descriptor", f"{agent.name} is required")
    return ndl
