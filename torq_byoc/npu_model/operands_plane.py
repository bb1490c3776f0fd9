"""Planar operands: padding, stride phases, dilation.

A planar operand is copied once into padded planes at full resolution; kernel rows, kernel columns, pixel rows and
pixel columns are then strides of one sliding-window view.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Ndl, Plane, SliceTask, Tag
from torq_byoc.npu_model.operands import Axis, Box, Part, memory_view, numbers, refuse, storage


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
