"""Boxes of tensors as strided operands, and the cheapest loop nest that walks several of them together.

An element-wise kernel sees every operand as a ``View``: an address and one stride an axis of the box it
computes, 0 where the operand is broadcast.  Neighbouring axes that every view walks in one run collapse to
one loop; the lanes go over the loop that costs the fewest cycles, the others become parallel loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from torq_byoc.errors import KernelError
from torq_byoc.kernels.dsl import LoopSpec, Operand
from torq_byoc.kernels.kernel import Placement, Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.encoding import program_bytes
from torq_byoc.npu_model.isa import OutputWindow, Role, SliceTask
from torq_byoc.npu_model.timing import task_cycles


class View(msgspec.Struct, frozen=True, gc=False):
    """An operand over a box of axes: LRAM byte address of its first element, bytes between neighbours.

    With a ``window`` the last axis runs over the flat positions of a plane (its stride is 0): there the writer's
    plane walk says where each result goes, and the lanes must run along it.
    """

    address: int
    dtype: DType
    strides: tuple[int, ...]
    window: OutputWindow | None = None

    def shifted(self, offsets: Sequence[int]) -> View:
        """The view that starts ``offsets`` elements further along each axis."""
        distance = sum(offset * stride for offset, stride in zip(offsets, self.strides, strict=True))
        return replace(self, address=self.address + distance)

    def permuted(self, order: Sequence[int]) -> View:
        """The view with its axes in another order."""
        return replace(self, strides=tuple(self.strides[axis] for axis in order))


def view(placement: Placement, start: Sequence[int]) -> View:
    """The view of a tile from a tensor index on, one stride a tensor axis.

    Raises:
        KernelError: the tile lies in stride phases, which no view over tensor axes can describe.
    """
    if placement.phases != (1, 1):
        raise KernelError(
            "an element-wise kernel was given a tile in stride phases",
            where=f"LRAM address {placement.address:#x}",
            why=f"phases {placement.phases}, and only dense tiles have one stride an axis",
            remedy="keep tensors that element-wise kernels read or write dense in LRAM",
        )
    return View(placement.offset_of(start), placement.dtype, placement.strides)


def broadcast_region(shape: Sequence[int], output: Region) -> Region:
    """The part of a tensor that an output box reads under numpy's broadcasting rules."""
    lead = len(output.start) - len(shape)
    start, extent = output.start[lead:], output.extent[lead:]
    if 1 in shape:
        start = tuple([0 if size == 1 else first for size, first in zip(shape, start, strict=True)])
        extent = tuple([1 if size == 1 else count for size, count in zip(shape, extent, strict=True)])
    return Region(start, extent)


def broadcast_view(placement: Placement, shape: Sequence[int], output: Region) -> View:
    """A tile of a tensor of the given shape over the axes of an output box; broadcast axes have stride 0."""
    base = view(placement, broadcast_region(shape, output).start)
    lead = (0,) * (len(output.start) - len(shape))
    return replace(
        base, strides=lead + tuple(0 if size == 1 else s for size, s in zip(shape, base.strides, strict=True))
    )


def broadcast_strides(shape: Sequence[int], size: int, rank: int) -> tuple[int, ...]:
    """Strides of a dense tensor of elements of ``size`` bytes over an output of some rank, 0 where it is repeated."""
    strides, step = [0] * rank, size
    for axis in range(1, len(shape) + 1):
        strides[-axis] = step if shape[-axis] > 1 else 0
        step *= shape[-axis]
    return tuple(strides)


def collapse(extent: Sequence[int], views: Sequence[View]) -> tuple[tuple[int, ...], list[View]]:
    """Drop axes of extent 1 and merge neighbours that every view walks as one run.

    Args:
        extent: the box.
        views: operands over that box.

    Returns:
        The extents that remain, at least one, and the views over them.
    """
    extents: list[int] = []
    strides: list[tuple[int, ...]] = []
    for axis, size in enumerate(extent):
        if size == 1:
            continue
        inner = tuple(operand.strides[axis] for operand in views)
        if extents and all(outer == step * size for outer, step in zip(strides[-1], inner, strict=True)):
            extents[-1] *= size
            strides[-1] = inner
        else:
            extents.append(size)
            strides.append(inner)
    if not extents:
        extents, strides = [1], [(0,) * len(views)]
    collapsed = [replace(v, strides=tuple(step[i] for step in strides)) for i, v in enumerate(views)]
    return tuple(extents), collapsed


class Walk(msgspec.Struct, frozen=True, gc=False):
    """One way to walk a collapsed box: parallel loops, the lane loop innermost."""

    loops: tuple[LoopSpec, ...]
    axes: tuple[int, ...]
    vector: int

    def operand(self, view: View, extra: dict[str, int] | None = None) -> Operand:
        """A view as an operand of the nest; ``extra`` gives the strides of loops beyond the box."""
        strides = {f"x{axis}": view.strides[axis] for axis in self.axes if view.strides[axis]}
        return Operand(view.address, view.dtype, strides | (extra or {}))


def walks(extent: Sequence[int], target: View | None = None) -> Iterator[Walk]:
    """All choices of the lane loop for a collapsed box, the innermost axis first; the last one for a window."""
    lanes = reversed(range(len(extent)))
    for lane in [len(extent) - 1] if target and target.window else lanes:
        axes = (*(axis for axis in range(len(extent)) if axis != lane), lane)
        loops = tuple(LoopSpec(f"x{axis}", extent[axis], Role.LANE if axis == lane else Role.PARALLEL) for axis in axes)
        yield Walk(loops, axes, _short_vector(extent[lane]))


def _short_vector(lanes: int) -> int:
    """Lanes a cycle for a loop shorter than ACT is wide (a gather then loads no lanes beyond it); else 0."""
    if lanes == 1:
        return 1
    return -(-lanes // 4) * 4 if lanes <= 12 else 0


def total_cost(tasks: Sequence[SliceTask], config: NpuConfig) -> float:
    """Cycles of a task sequence, those of its program's transfer counted in."""
    return sum(map(task_cycles, tasks)) + program_bytes(tasks) / config.dma_bytes_per_cycle
