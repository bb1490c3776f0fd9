"""Which bytes a slice task or a transfer reads and writes, exactly, without executing it.

Follows the definitions of ``isa.py``: lanes and group members beyond their loop's extent touch nothing,
padding is not read, frame positions outside the output window are not written.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property, lru_cache

import msgspec
import numpy as np
from msgspec.structs import replace

from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Agent, DmaDescriptor, Ndl, OutputWindow, Plane, Role, SliceTask, Tag

_POSITION_LIMIT = 1 << 22


class TaskFootprint(msgspec.Struct, frozen=True, eq=False, dict=True):
    """LRAM bytes of one slice task.

    Attributes:
        operands: the bytes each reading agent reads (DEDR, DEWR, DEBR).
        writes: the bytes DEQW writes.
        written_bytes: bytes written counted as often as they are written.
        distinct_bytes: bytes of ``writes``; fewer than that when a byte is written twice.
    """

    operands: dict[Agent, np.ndarray]
    writes: np.ndarray
    written_bytes: int
    distinct_bytes: int

    @cached_property
    def reads(self) -> np.ndarray:
        """The bytes any agent reads."""
        return intervals.union(self.operands.values())


def without_bases(task: SliceTask) -> SliceTask:
    """The task with all its operands at address 0."""
    return replace(task, ndls=tuple([replace(ndl, base=0) for ndl in task.ndls]))


def form_of(task: SliceTask) -> Hashable:
    """Everything about a task but the bases of its operands and the entries of its table."""
    walks = tuple([(ndl.agent, ndl.dtype, ndl.dims) for ndl in task.ndls])
    rest = (task.alu, task.act, task.plane, task.window, task.table and len(task.table), task.fill_value)
    return (walks, task.loops, task.vector, task.weights, rest)


def task_footprint(task: SliceTask) -> TaskFootprint:
    """LRAM bytes that a slice task reads and writes.

    Raises:
        ValueError: an operand spans more bytes than any memory of the machine has.
    """
    operands = {}
    if task.fill_value is None:
        for agent in (Agent.DEDR, Agent.DEWR, Agent.DEBR):
            ndl = task.ndl(agent)
            if ndl:
                operands[agent] = operand_reads(task, ndl)
    result = task.ndl(Agent.DEQW)
    if result is None:
        return TaskFootprint(operands, intervals.EMPTY, 0, 0)
    writes = _writes(task, result)
    return TaskFootprint(operands, writes, _elements_written(task) * result.dtype.size, intervals.size(writes))


def element_bytes(ndl: Ndl) -> int:
    """Bytes an agent moves for one point of the nest: an element, or for DEBR a bias or bias-scale pair."""
    if ndl.agent is Agent.DEBR:
        return 4 if ndl.dtype is DType.FP32 else 8
    return ndl.dtype.size


def loop_strides(ndl: Ndl, loops: int) -> list[int]:
    """Bytes between neighbouring iterations of every loop (``Ndl.loop_stride`` of all at once)."""
    strides = [0] * loops
    fine, coarse = set(), set()
    for dim in reversed(ndl.dims):
        loop = dim.loop
        if loop in fine:
            continue
        if dim.step == 1:
            strides[loop] = dim.stride
            fine.add(loop)
        elif loop not in coarse:
            strides[loop] = dim.stride // max(dim.step, 1)
            coarse.add(loop)
    return strides


def planar_loops(task: SliceTask) -> dict[str, int]:
    """Positions of the loops that the plane logic moves: ``lane``, and ``row``, ``column`` where present."""
    found = {}
    for position, loop in enumerate(task.loops):
        if loop.role is Role.LANE:
            found["lane"] = position
        elif loop.tag is Tag.KERNEL_ROW:
            found["row"] = position
        elif loop.tag is Tag.KERNEL_COLUMN:
            found["column"] = position
    return found


def transfer_lram(descriptor: DmaDescriptor) -> np.ndarray:
    """LRAM bytes of a transfer."""
    return intervals.interval(descriptor.lram, descriptor.lram + descriptor.nbytes)


def transfer_xram(descriptor: DmaDescriptor) -> np.ndarray:
    """XRAM bytes of a transfer.

    Raises:
        ValueError: the transfer spans more bytes than an operand can have.
    """
    return _walked(descriptor.run, descriptor.dims) + descriptor.xram if descriptor.nbytes else intervals.EMPTY


@lru_cache(maxsize=64)
def _walked(run: int, dims: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Bytes of a transfer from XRAM byte 0: those of the tiles of a tensor are alike."""
    return intervals.spread(intervals.interval(0, run), dims)


def transfer_xram_bounds(descriptor: DmaDescriptor) -> tuple[int, int]:
    """First XRAM byte of a transfer, and the one after its last."""
    low, high = descriptor.xram, descriptor.xram + descriptor.run
    for count, stride in descriptor.dims:
        if count > 0 and stride < 0:
            low += (count - 1) * stride
        elif count > 0:
            high += (count - 1) * stride
    return low, high


def operand_reads(task: SliceTask, ndl: Ndl) -> np.ndarray:
    """LRAM byte intervals that one memory agent reads in a task."""
    run = intervals.interval(ndl.base, ndl.base + element_bytes(ndl))
    moved: set[int] = set()
    if ndl.agent is Agent.DEDR and task.plane:
        planar = planar_loops(task)
        moved = set(planar.values())
        taps = [task.loops[planar[name]].extent if name in planar else 1 for name in ("row", "column")]
        frame = _plane_offsets(task.plane, task.loops[planar["lane"]].extent, taps, ndl.dtype.size)
        run = frame + ndl.base
    return intervals.spread(run, _dims(task, ndl, moved))


def _writes(task: SliceTask, ndl: Ndl) -> np.ndarray:
    run = intervals.interval(ndl.base, ndl.base + ndl.dtype.size)
    moved: set[int] = set()
    if task.window:
        lane = planar_loops(task)["lane"]
        moved = {lane}
        run = _window_offsets(task.window, task.loops[lane].extent, ndl.dtype.size) + ndl.base
    return intervals.spread(run, _dims(task, ndl, moved))


def _dims(task: SliceTask, ndl: Ndl, moved: set[int]) -> list[tuple[int, int]]:
    """(extent, stride) of the loops that move an operand, those of the plane logic left out."""
    strides = loop_strides(ndl, len(task.loops))
    return [
        (loop.extent, strides[position])
        for position, loop in enumerate(task.loops)
        if position not in moved and strides[position]
    ]


def _elements_written(task: SliceTask) -> int:
    count = 1
    for loop in task.loops:
        if loop.role is Role.LANE and task.window:
            window = task.window
            rows, rest = divmod(loop.extent, window.frame_width)
            count *= rows * len(_window_columns(window, window.frame_width)) + len(_window_columns(window, rest))
        elif loop.role is not Role.REDUCE:
            count *= loop.extent
    return count


def _window_columns(window: OutputWindow, width: int) -> range:
    """Written columns of the first ``width`` columns of a row, counted from the window's first one."""
    end = min(window.first_column + window.columns, window.frame_width, width)
    return range(max(0, end - window.first_column))


def _window_offsets(window: OutputWindow, lanes: int, size: int) -> np.ndarray:
    def box(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        down = rows % window.stride_y * window.phase_stride_y + rows // window.stride_y * window.row_stride
        across = columns % window.stride_x * window.phase_stride_x
        return _grid(down, across + columns // window.stride_x * window.column_stride, size)

    rows, rest = divmod(lanes, window.frame_width)
    _bounded(rows, min(window.columns, window.frame_width))
    pieces = [
        (np.arange(rows, dtype=np.int64), np.asarray(_window_columns(window, window.frame_width), np.int64)),
        (np.array([rows], np.int64), np.asarray(_window_columns(window, rest), np.int64)),
    ]
    return intervals.union(box(down, across) for down, across in pieces)


def _plane_offsets(plane: Plane, lanes: int, taps: list[int], size: int) -> np.ndarray:
    """Offsets of the bytes inside the plane that any lane reads at any kernel position."""

    def box(first: int, rows: int, columns: int) -> np.ndarray:
        down = _positions(first, rows, plane.stride_y, taps[0], plane.dilation_y, plane.pad_top, plane.height)
        across = _positions(0, columns, plane.stride_x, taps[1], plane.dilation_x, plane.pad_left, plane.width)
        return _grid(
            down % plane.stride_y * plane.phase_stride_y + down // plane.stride_y * plane.row_stride,
            across % plane.stride_x * plane.phase_stride_x + across // plane.stride_x * size,
            size,
        )

    rows, rest = divmod(lanes, plane.frame_width)
    return intervals.union([box(0, rows, plane.frame_width), box(rows, 1, rest)])


def _positions(first: int, count: int, stride: int, taps: int, dilation: int, pad: int, limit: int) -> np.ndarray:
    """Sorted plane coordinates (first + k) * stride + tap * dilation - pad that lie in 0..limit-1."""
    count = min(count, (limit - 1 + pad) // stride + 1 - first)
    taps = min(taps, (limit - 1 + pad) // max(dilation, 1) + 1) if dilation else 1
    if count <= 0 or taps <= 0:
        return np.zeros(0, np.int64)
    _bounded(count, taps)
    start = first * stride - pad
    if dilation == 1 and taps >= stride or stride == 1 and count >= dilation:
        return np.arange(max(0, start), min(limit, start + (count - 1) * stride + (taps - 1) * dilation + 1))
    sums = np.arange(count)[:, None] * stride + np.arange(taps)[None, :] * dilation + start
    inside = np.unique(sums)
    return inside[(inside >= 0) & (inside < limit)]


def _bounded(*counts: int) -> None:
    product = 1
    for count in counts:
        product *= count
    if product > _POSITION_LIMIT:
        raise ValueError(f"a plane walk of {' x '.join(map(str, counts))} positions")


def _grid(down: np.ndarray, across: np.ndarray, size: int) -> np.ndarray:
    """Bytes of the elements at all sums of a row offset and a column offset."""
    if not down.size or not across.size:
        return intervals.EMPTY
    row = intervals.merge(across, across + size)
    starts = down[:, None] + row[None, :, 0]
    return intervals.merge(starts.ravel(), (down[:, None] + row[None, :, 1]).ravel())
