"""Hypothesis strategies for small slice tasks that use every feature of the instruction set."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from msgspec.structs import replace

from torq_byoc.errors import KernelError
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.kernels.limits import check_task
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import (
    ActConfig,
    ActMode,
    AluConfig,
    Op0,
    Op1,
    OutputWindow,
    Plane,
    Role,
    Rounding,
    SliceTask,
    Tag,
)

INTEGERS = [DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32]
AREA = 1 << 16
DATA, WEIGHT, BIAS, RESULT, END = 0, AREA, 2 * AREA, 3 * AREA, 5 * AREA
COMPARISONS = (Op1.GT, Op1.GE, Op1.EQ)
FLOAT_OPS = [op for op in Op1 if op not in (Op1.BAND, Op1.BOR, Op1.BXOR, Op1.BNOT, Op1.CARRY)]
INTEGER_OPS = [op for op in Op1 if op not in (Op1.MUL, Op1.CARRY)]
TO_INTEGERS = (*COMPARISONS, Op1.AND, Op1.OR, Op1.XOR, Op1.NOT, Op1.AMAX, Op1.AMIN)
PAIRS = [
    (DType.INT8, DType.INT8),
    (DType.UINT8, DType.INT8),
    (DType.INT8, DType.UINT8),
    (DType.INT8, DType.INT16),
    (DType.INT16, DType.INT8),
    (DType.INT16, DType.INT16),
    (DType.UINT16, DType.INT16),
    (DType.INT32, DType.INT8),
    (DType.BF16, DType.BF16),
]


@dataclass(frozen=True)
class Case:
    """A task and the memory it runs on."""

    task: SliceTask
    memory: np.ndarray


@st.composite
def cases(draw: st.DrawFn, op1: Op1 | None = None) -> Case:
    """Any task; ``op1`` fixes the folding operation."""
    op1 = draw(st.sampled_from(list(Op1))) if op1 is None else op1
    if op1 is Op1.CARRY:
        return draw(_blocks())
    data, weight = draw(_types(op1))
    loops, plane = draw(_loops(op1))
    assume(math.prod(loop.extent for loop in loops) <= 4000)
    is_float = data.is_float and op1 not in TO_INTEGERS
    act, result_type, table = draw(_act(is_float, data.is_float))
    planar = {"lane", "i", "j"} if plane else set()
    plane = _typed(plane, data, {loop.tag: loop.extent for loop in loops}, draw(st.integers(0, 2)))
    outer = [loop for loop in loops if loop.role is not Role.REDUCE]
    window = draw(st.none() | _windows(loops, plane, result_type))
    nest = LoopNest(
        tuple(loops),
        result=draw(_target(outer, result_type, window)),
        data=draw(_source(loops, planar, DATA, data, plane)),
        weight=draw(_source(loops, set(), WEIGHT, weight, None)) if weight else None,
        bias=draw(_bias(outer, is_float)),
        alu=AluConfig(Op0.MUL if weight else Op0.DBYP, op1),
        act=act,
        plane=plane,
        window=window,
        table=table,
        vector=draw(st.sampled_from([0, 1, 4, 8])),
        weights=draw(st.sampled_from([1, 2, 4])),
    )
    seed = draw(st.integers(0, 2**32 - 1))
    try:
        task = build(nest, NpuConfig())
        check_task(task, NpuConfig())
    except KernelError:
        assume(False)
        raise
    return Case(task, _memory(seed, data, weight, is_float, act.mode))


@st.composite
def _blocks(draw: st.DrawFn) -> Case:
    """A block transposition with gaps between the rows of both sides; partial blocks as well."""
    dtype = draw(st.sampled_from([dtype for dtype in INTEGERS if dtype.size <= 2]))
    size, planes = dtype.size, draw(st.integers(1, 2))
    lanes, members = draw(st.integers(1, 70)), draw(st.integers(1, 45))
    row, column = (lanes + draw(st.integers(0, 3))) * size, (members + draw(st.integers(0, 3))) * size
    nest = LoopNest(
        (LoopSpec("p", planes), LoopSpec("lane", lanes, Role.LANE), LoopSpec("group", members, Role.GROUP)),
        result=Operand(RESULT, dtype, {"p": column * lanes, "lane": column, "group": size}),
        data=Operand(DATA, dtype, {"p": row * members, "lane": size, "group": row}),
        alu=AluConfig(Op0.DBYP, Op1.CARRY),
        vector=32 // size,
        weights=32,
    )
    task = build(nest, NpuConfig())
    check_task(task, NpuConfig())
    return Case(task, np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, 256, END, np.uint8))


@st.composite
def _types(draw: st.DrawFn, op1: Op1) -> tuple[DType, DType | None]:
    ops = {False: INTEGER_OPS, True: FLOAT_OPS}
    pairs = [pair for pair in PAIRS if op1 in ops[pair[0].is_float]]
    alone = [t for t in [*INTEGERS, DType.BF16, DType.FP32] if op1 in ops[t.is_float]]
    if draw(st.booleans()):
        return draw(st.sampled_from(pairs))
    return draw(st.sampled_from(alone)), None


@st.composite
def _loops(draw: st.DrawFn, op1: Op1) -> tuple[list[LoopSpec], Plane | None]:
    frame = draw(st.booleans())
    columns = draw(st.integers(1, 7))
    lanes = draw(st.integers(1, 4 * columns if frame else 40))
    outer = [LoopSpec("lane", lanes, Role.LANE)]
    outer += [LoopSpec(f"p{k}", draw(st.integers(1, 3)), Role.PARALLEL) for k in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        outer.append(LoopSpec("group", draw(st.integers(1, 6)), Role.GROUP))
    outer = draw(st.permutations(outer))
    if op1 in COMPARISONS:
        return [*outer, LoopSpec("r", 2, Role.REDUCE)], _plane(draw, columns) if frame else None
    reduce = [
        LoopSpec("c", draw(st.sampled_from([1, 2, 3, 70])), Role.REDUCE, Tag.IN_CHANNEL),
        LoopSpec("i", draw(st.integers(1, 3)), Role.REDUCE, Tag.KERNEL_ROW),
        LoopSpec("j", draw(st.integers(1, 4)), Role.REDUCE, Tag.KERNEL_COLUMN),
    ]
    kept = [loop for loop in reduce if draw(st.booleans())]
    return [*outer, *kept], _plane(draw, columns) if frame else None


def _plane(draw: st.DrawFn, columns: int) -> Plane:
    return Plane(
        height=draw(st.integers(1, 8)),
        width=draw(st.integers(1, 9)),
        frame_width=columns,
        row_stride=0,
        stride_y=draw(st.sampled_from([1, 2])),
        stride_x=draw(st.sampled_from([1, 2])),
        phase_stride_y=draw(st.integers(20, 60)),
        phase_stride_x=draw(st.integers(-15, 15)),
        dilation_y=draw(st.sampled_from([1, 2, 3])),
        dilation_x=draw(st.sampled_from([1, 2])),
        pad_top=draw(st.integers(0, 3)),
        pad_value=draw(st.sampled_from([0, 5, 127])),
    )


def _typed(plane: Plane | None, data: DType, kernel: dict[Tag, int], pad: int) -> Plane | None:
    """Distances drawn in elements become bytes; rows lie a frame apart; the left border is one the machine has."""
    if plane is None:
        return None
    taps = kernel.get(Tag.KERNEL_COLUMN, 1)
    return replace(
        plane,
        row_stride=plane.frame_width * data.size,
        phase_stride_y=plane.phase_stride_y * data.size,
        phase_stride_x=plane.phase_stride_x * data.size,
        pad_left=(0, plane.dilation_x * (taps // 2), plane.dilation_x * ((taps - 1) // 2))[pad],
    )


@st.composite
def _windows(draw: st.DrawFn, loops: list[LoopSpec], plane: Plane | None, result: DType) -> OutputWindow:
    """A window whose positions never collide: rows apart, phases apart."""
    lanes = next(loop.extent for loop in loops if loop.name == "lane")
    width = plane.frame_width if plane else draw(st.integers(1, max(1, lanes)))
    first = draw(st.integers(0, width - 1))
    columns = draw(st.integers(1, width - first))
    stride_y, stride_x = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    column_stride = result.size * draw(st.sampled_from([1, 3]))
    row_stride = column_stride * columns + result.size * draw(st.integers(0, 2))
    rows = -(-lanes // width)
    plane_bytes = row_stride * rows
    return OutputWindow(
        width, first, columns, row_stride, column_stride, stride_y, stride_x, 2 * plane_bytes, plane_bytes
    )


@st.composite
def _act(
    draw: st.DrawFn, is_float: bool, float_data: bool
) -> tuple[ActConfig, DType, tuple[tuple[int, int], ...] | None]:
    rounding = draw(st.sampled_from(list(Rounding)))
    if is_float:
        modes = [ActMode.ACT, ActMode.ABS, ActMode.NEG, ActMode.CEL, ActMode.FLR, ActMode.F2I]
    else:
        modes = [mode for mode in ActMode if mode not in (ActMode.CEL, ActMode.FLR, ActMode.F2I)]
    mode = draw(st.sampled_from(modes))
    float_result = mode is ActMode.I2F or (is_float and mode is not ActMode.F2I)
    result = draw(st.sampled_from([DType.BF16, DType.FP32] if float_result else INTEGERS))
    low, high = draw(st.sampled_from([(float("-inf"), float("inf")), (-7, 100), (0, float("inf"))]))
    table = None
    if mode is ActMode.TABLE:
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        table = tuple((int(b), int(s)) for b, s in rng.integers(-32768, 32768, (512, 2)))
    act = ActConfig(
        mode,
        shift=0 if float_data else draw(st.integers(0, 63)),
        rounding=rounding,
        zero_point=draw(st.sampled_from([0, 3, -128, 32767])),
        clip_min=low,
        clip_max=high,
        sum_bits=draw(st.sampled_from([32, 48])),
    )
    return act, result, table


@st.composite
def _source(
    draw: st.DrawFn, loops: list[LoopSpec], skip: set[str], area: int, dtype: DType, plane: Plane | None
) -> Operand:
    strides = {}
    lowest = 0
    for loop in loops:
        if loop.name in skip:
            continue
        steps = draw(st.sampled_from([0, 0, 1, 1, 2, 5, -1, 17]))
        strides[loop.name] = steps * dtype.size
        lowest += min(0, steps * dtype.size * (loop.extent - 1))
    slack = 64 * dtype.size if plane else 0
    return Operand(area - lowest + slack + draw(st.integers(0, 3)) * 2, dtype, strides)


@st.composite
def _target(draw: st.DrawFn, outer: list[LoopSpec], dtype: DType, window: OutputWindow | None) -> Operand:
    """Every point has bytes of its own."""
    distance, base, strides = dtype.size, RESULT, {}
    if window:
        distance = 4 * window.phase_stride_x + 4 * window.column_stride
    for loop in draw(st.permutations(outer)):
        if window and loop.name == "lane":
            continue
        stride = distance * draw(st.sampled_from([1, 1, 2, -1]))
        strides[loop.name] = stride
        base += max(0, -stride * (loop.extent - 1))
        distance = abs(stride) * loop.extent
    return Operand(base, dtype, strides)


@st.composite
def _bias(draw: st.DrawFn, outer: list[LoopSpec], is_float: bool) -> Operand | None:
    if draw(st.booleans()):
        return None
    size = 4 if is_float else 8
    strides = {loop.name: size * draw(st.sampled_from([0, 0, 1, 3])) for loop in outer}
    return Operand(BIAS, DType.FP32 if is_float else DType.INT32, strides)


def _memory(seed: int, data: DType, weight: DType | None, is_float: bool, mode: ActMode) -> np.ndarray:
    """Random bytes; float operands of sums are multiples of 1/8 up to 16, so that every order of summation is
    exact, and hold specials elsewhere."""
    rng = np.random.default_rng(seed)
    memory = rng.integers(0, 256, END, np.uint8)
    for start, dtype in ((DATA, data), (WEIGHT, weight)):
        if dtype is not None and dtype.is_float:
            count = AREA // dtype.size
            values = (rng.integers(-128, 129, count) / 8).astype(np.float32)
            if weight is None and is_float:
                special = rng.random(count) < 0.02
                values[special] = rng.choice([np.inf, np.nan, -0.0, 3e38, -1e-40], special.sum())
            raw = values.astype(ml_dtypes.bfloat16) if dtype is DType.BF16 else values
            memory[start : start + AREA] = raw.view(np.uint8)
    if is_float:
        biases = rng.normal(0, 3, AREA // 4).astype(np.float32)
        memory[BIAS:RESULT] = biases.view(np.uint8)
    elif mode in (ActMode.LSL, ActMode.LSR, ActMode.ASR):
        pairs = memory[BIAS:RESULT].view(np.int32)
        pairs[1::2] = rng.integers(0, 40, pairs.size // 2)
    elif rng.random() < 0.5:
        pairs = memory[BIAS:RESULT].view(np.int32)
        pairs[:] = rng.integers(-300, 300, pairs.size)
    return memory
