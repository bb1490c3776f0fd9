"""Where results go: strided stores, through the output window where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Ndl, OutputWindow, SliceTask
from torq_byoc.npu_model.operands import Axis, Box, Part, axis_stride, frame_width, lane_loop, memory_view, storage


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
            strides = tuple(axis_stride(ndl, axis, width) for axis in axes)
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
