"""Random small loop nests, and the bytes they touch found one point of the nest at a time."""

from __future__ import annotations

from itertools import product

import numpy as np

from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import (
    ActConfig,
    Agent,
    AluConfig,
    Op0,
    Op1,
    OutputWindow,
    Plane,
    Role,
    SliceTask,
    Tag,
)

CONFIG = NpuConfig()


def random_task(rng: np.random.Generator) -> SliceTask:
    """A nest of a random kind with awkward extents, strides and bases."""
    kinds = (flat, planar, fill)
    return kinds[rng.integers(len(kinds))](rng)


def flat(rng: np.random.Generator) -> SliceTask:
    """Strided operands, possibly with group members, weights that walk the lanes, and negative strides."""
    multiply = bool(rng.integers(2))
    grouped = multiply and bool(rng.integers(2))
    data_type = DType.INT16 if rng.integers(2) else DType.INT8
    loops = [LoopSpec("a", _extent(rng)), LoopSpec("b", _extent(rng)), LoopSpec("l", _extent(rng, 150), Role.LANE)]
    if grouped:
        loops.append(LoopSpec("g", int(rng.integers(1, 7)), Role.GROUP))
    loops += [LoopSpec("r", _extent(rng), Role.REDUCE), LoopSpec("s", _extent(rng, 4), Role.REDUCE)]
    outer = [loop.name for loop in loops if loop.role is not Role.REDUCE]
    every = [loop.name for loop in loops]
    nest = LoopNest(
        loops=tuple(loops),
        data=Operand(4096 + int(rng.integers(64)), data_type, _strides(rng, every, data_type.size)),
        weight=Operand(20000, DType.INT8, _strides(rng, every, 1)) if multiply else None,
        bias=Operand(40000, DType.INT32, _strides(rng, outer, 8)) if rng.integers(2) else None,
        result=Operand(60000, DType.INT16, {**_strides(rng, outer, 2), "l": (2, 4, -2)[rng.integers(3)]}),
        alu=AluConfig(Op0.MUL if multiply else Op0.DBYP, Op1.ACC),
        act=ActConfig(shift=int(rng.integers(0, 64)), clip_min=-7, clip_max=float("inf"), sum_bits=48),
        weights=4 if grouped else 1,
    )
    return build(nest, CONFIG)


def planar(rng: np.random.Generator) -> SliceTask:
    """Convolution-like nests: padding, strides with phase planes, dilation, dense or phased output windows."""
    stride_y, stride_x = (int(rng.integers(1, 3)) for _ in "yx")
    dilation_y, dilation_x = (int(rng.integers(1, 3)) for _ in "yx")
    rows, columns = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    kernel_rows, kernel_columns = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    height, width = (rows * stride_y + int(rng.integers(-1, 3)), columns * stride_x + int(rng.integers(-1, 3)))
    frame = columns + int(rng.integers(0, 3))
    lanes = max(1, rows * frame - int(rng.integers(0, frame)))
    phase_bytes = frame * -(-max(height, 1) // stride_y)
    plane = Plane(
        max(height, 1),
        max(width, 1),
        frame,
        frame,
        stride_y,
        stride_x,
        2 * phase_bytes * (stride_y - 1),
        phase_bytes * (stride_x - 1),
        dilation_y,
        dilation_x,
        int(rng.integers(0, kernel_rows * dilation_y + 1)),
        dilation_x * (kernel_columns // 2) * int(rng.integers(2)),
        int(rng.integers(-128, 128)),
    )
    window, result = None, {"v": 4000, "g": 900, "f": 1}
    if rng.integers(3):
        first = int(rng.integers(0, frame))
        split_y, split_x = (int(rng.integers(1, 3)) for _ in "yx")
        window = OutputWindow(frame, first, frame - first, 50, int(rng.integers(1, 3)), split_y, split_x, 400, 25)
        result = {"v": 4000, "g": 900}
    nest = LoopNest(
        loops=(
            LoopSpec("v", int(rng.integers(1, 3))),
            LoopSpec("f", lanes, Role.LANE, Tag.FLAT),
            LoopSpec("g", int(rng.integers(1, 5)), Role.GROUP),
            LoopSpec("u", int(rng.integers(1, 4)), Role.REDUCE, Tag.IN_CHANNEL),
            LoopSpec("i", kernel_rows, Role.REDUCE, Tag.KERNEL_ROW),
            LoopSpec("j", kernel_columns, Role.REDUCE, Tag.KERNEL_COLUMN),
        ),
        data=Operand(30000, DType.INT8, {"u": 4 * phase_bytes, "g": 1000 * int(rng.integers(2))}),
        weight=Operand(20000, DType.INT8, {"v": 400, "u": kernel_rows * kernel_columns * 4, "i": kernel_columns * 4}),
        result=Operand(60000, DType.INT8, result),
        alu=AluConfig(Op0.MUL, Op1.ACC),
        plane=plane,
        window=window,
        weights=4,
    )
    return build(nest, CONFIG)


def fill(rng: np.random.Generator) -> SliceTask:
    nest = LoopNest(
        loops=(LoopSpec("a", _extent(rng)), LoopSpec("l", _extent(rng, 200), Role.LANE)),
        result=Operand(5000, DType.INT16, {"a": int(rng.integers(-300, 700)), "l": 2}),
        fill_value=int(rng.integers(-32768, 65536)),
    )
    return build(nest, CONFIG)


def touched(task: SliceTask) -> tuple[dict[Agent, set[int]], list[int]]:
    """Bytes every reading agent reads, and the bytes written in order of the nest, by the definitions of ``isa``."""
    reads: dict[Agent, set[int]] = {}
    writes: list[int] = []
    reduce_from = next((k for k, loop in enumerate(task.loops) if loop.role is Role.REDUCE), len(task.loops))
    for point in product(*(range(loop.extent) for loop in task.loops)):
        for ndl in task.ndls:
            if ndl.agent in (Agent.DEDR, Agent.DEWR, Agent.DEBR):
                address = _data_address(task, point) if ndl.agent is Agent.DEDR else _address(ndl, point)
                size = (4 if ndl.dtype is DType.FP32 else 8) if ndl.agent is Agent.DEBR else ndl.dtype.size
                if address is not None:
                    reads.setdefault(ndl.agent, set()).update(range(address, address + size))
        if not any(point[reduce_from:]):
            address = _result_address(task, point)
            if address is not None:
                writes += range(address, address + task.ndl(Agent.DEQW).dtype.size)
    return reads, writes


def _address(ndl, point: tuple[int, ...], skip: tuple[int, ...] = ()) -> int:
    """Base plus, dim by dim, stride times the part of the loop index that the dim counts."""
    address = ndl.base
    left = list(point)
    for dim in ndl.dims:
        if dim.loop in skip or dim.kind.name == "S":
            continue
        part, left[dim.loop] = divmod(left[dim.loop], dim.step)
        address += part * dim.stride
    return address


def _loops(task: SliceTask, wanted) -> tuple[int, ...]:
    return tuple(position for position, loop in enumerate(task.loops) if wanted(loop))


def _data_address(task: SliceTask, point: tuple[int, ...]) -> int | None:
    ndl, plane = task.ndl(Agent.DEDR), task.plane
    if plane is None:
        return _address(ndl, point)
    lane = _loops(task, lambda loop: loop.role is Role.LANE)
    row = _loops(task, lambda loop: loop.tag is Tag.KERNEL_ROW and loop.role is not Role.LANE)
    column = _loops(task, lambda loop: loop.tag is Tag.KERNEL_COLUMN and loop.role is not Role.LANE)
    y, x = divmod(point[lane[0]], plane.frame_width)
    y = y * plane.stride_y + sum(point[k] for k in row) * plane.dilation_y - plane.pad_top
    x = x * plane.stride_x + sum(point[k] for k in column) * plane.dilation_x - plane.pad_left
    if not (0 <= y < plane.height and 0 <= x < plane.width):
        return None
    address = _address(ndl, point, lane + row + column)
    address += y % plane.stride_y * plane.phase_stride_y + x % plane.stride_x * plane.phase_stride_x
    return address + y // plane.stride_y * plane.row_stride + x // plane.stride_x * ndl.dtype.size


def _result_address(task: SliceTask, point: tuple[int, ...]) -> int | None:
    ndl, window = task.ndl(Agent.DEQW), task.window
    if window is None:
        return _address(ndl, point)
    lane = _loops(task, lambda loop: loop.role is Role.LANE)
    y, x = divmod(point[lane[0]], window.frame_width)
    x -= window.first_column
    if not 0 <= x < window.columns:
        return None
    address = _address(ndl, point, lane)
    address += y % window.stride_y * window.phase_stride_y + x % window.stride_x * window.phase_stride_x
    return address + y // window.stride_y * window.row_stride + x // window.stride_x * window.column_stride


def _extent(rng: np.random.Generator, most: int = 6) -> int:
    return 1 if rng.integers(4) == 0 else int(rng.integers(1, most))


def _strides(rng: np.random.Generator, names: list[str], size: int) -> dict[str, int]:
    choices = (0, size, size, 2 * size, 3 * size, 7 * size, 64, 90, 160, -size, -40)
    return {name: choices[rng.integers(len(choices))] for name in names}
