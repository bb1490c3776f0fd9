"""Arithmetic of sliding windows along one axis: what an output range reads, and how strides become phases.

A window operator (convolution, pool) is separable into a row axis and a column axis.  Output index o reads
input indices ``o * stride - pad + j * dilation`` for j = 0 .. kernel - 1.

The machine walks planes with stride 1 or 2 only.  A larger stride s (and a 2 where it pays) is *folded*: the
tile lies as s phase planes, tap j of the kernel reads phase ``(j * dilation - pad) mod s`` at the shift
``(j * dilation - pad) div s`` of that plane, and every phase is a stride-1 window over its plane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.npu_model.config import NdlLimits

MAX_PLANE_STRIDE = max(NdlLimits().conv_strides)
"""Largest stride of the plane walk; larger ones are folded into phases."""


class Axis(msgspec.Struct, frozen=True, gc=False):
    """One spatial axis of a window operator, in elements.

    Attributes:
        size, out: extents of the input and of the output.
        pad: border before the first element; what lies after the last follows from ``out``.
        fold: fold a stride that the plane walk could follow.
    """

    size: int
    out: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    pad: int = 0
    fold: bool = False

    @property
    def reach(self) -> int:
        """Distance between the first and the last tap."""
        return (self.kernel - 1) * self.dilation

    def last_read(self, start: int, extent: int) -> int:
        """Largest input index (it may lie in the border) that outputs [start, start + extent) read."""
        return (start + extent - 1) * self.stride - self.pad + self.reach

    def input_span(self, start: int, extent: int) -> tuple[int, int]:
        """First index and extent of the input that an output range reads.

        Clipped to the tensor, never empty; the start is a multiple of the stride, and when folded the end is one
        too where the tensor allows, so that whole phases are loaded.
        """
        begin = min(max(start * self.stride - self.pad, 0), self.size - 1)
        begin -= begin % self.stride
        end = max(self.last_read(start, extent) + 1, begin + 1)
        if self.is_folded:
            end = math.ceil(end / self.stride) * self.stride
        return begin, min(end, self.size) - begin

    @property
    def is_folded(self) -> bool:
        """The stride is beyond the plane walk's, or folded by choice."""
        return self.fold or self.stride > MAX_PLANE_STRIDE

    @property
    def unit(self) -> int:
        """Elements that one index of the folded axis stands for."""
        return self.stride if self.is_folded else 1

    def taps(self) -> tuple[tuple[int, int], ...]:
        """For every kernel element, the phase it reads and its index in the (re-indexed) kernel."""
        if not self.is_folded:
            return tuple((0, j) for j in range(self.kernel))
        offsets = [j * self.dilation - self.pad for j in range(self.kernel)]
        lowest = offsets[0] // self.stride
        return tuple((offset % self.stride, offset // self.stride - lowest) for offset in offsets)

    def folded(self) -> Axis:
        """The axis as the plane walk sees it: itself, or for a large stride the same windows over one phase
        plane, with stride and dilation 1 and indices in units of the stride.

        Phases beyond a ragged end of the tensor do not exist, so ``size`` counts whole units.
        """
        if not self.is_folded:
            return self
        kernel = max(index for _, index in self.taps()) + 1
        return Axis(self.size // self.stride, self.out, kernel, pad=-(-self.pad // self.stride))

    @property
    def is_walkable(self) -> bool:
        """Whether a plane walk can follow this axis: every window touches the tensor, and a folded axis stays
        within the whole units of a tensor that ends inside a unit."""
        if self.pad > self.reach or (self.out - 1) * self.stride - self.pad >= self.size:
            return False
        whole = self.size // self.stride * self.stride
        return not self.is_folded or whole == self.size or self.last_read(0, self.out) < whole


def window_axes(graph: OpGraph, node: Node, kernel: Sequence[int]) -> tuple[Axis, Axis]:
    """Row and column axis of a conv2d, maxpool or sumpool node.

    An axis with a single output has no use for its stride and counts as stride 1.
    """
    shape, out = graph.tensors[node.inputs[0]].shape, graph.tensors[node.output].shape
    strides, dilations, pads = node.attrs["strides"], node.attrs.get("dilations", (1, 1)), node.attrs["pads"]
    rows, columns = (
        Axis(
            size=shape[2 + axis],
            out=out[2 + axis],
            kernel=int(kernel[axis]),
            stride=int(strides[axis]) if out[2 + axis] > 1 else 1,
            dilation=int(dilations[axis]) if kernel[axis] > 1 else 1,
            pad=int(pads[axis]),
        )
        for axis in (0, 1)
    )
    return rows, columns


def explicit_pads(rows: Axis, columns: Axis) -> tuple[int, int, int, int]:
    """Elements (top, left, bottom, right) that a separate pad node must add when the border of a window
    operator cannot be expressed; the operator then has pads 0 and the same output shape."""

    def after(axis: Axis) -> int:
        needed = max(axis.last_read(0, axis.out) + 1 - axis.size, 0)
        if axis.is_folded:
            needed += -(axis.pad + axis.size + needed) % axis.stride
        return needed

    return rows.pad, columns.pad, after(rows), after(columns)
