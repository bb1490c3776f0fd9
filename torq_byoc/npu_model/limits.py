"""What the descriptors and registers of the machine can express (hardware doc 1.6), checked task by task.

Every function returns sentences, empty when the machine can do it; the verifier turns them into
violations.  ``limits_walk`` holds the rules about how descriptors walk the nest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import (
    ActConfig,
    ActMode,
    Agent,
    AluConfig,
    DmaDescriptor,
    Op0,
    Op1,
    OutputWindow,
    Plane,
    Role,
    SliceTask,
    Tag,
)
from torq_byoc.npu_model.limits_walk import Nest, ndl_problems
from torq_byoc.npu_model.partials import carry_problems

_COMPUTE = {Agent.DEDR, Agent.CEDW, Agent.CEDR, Agent.CEPW, Agent.CEPR}
_OUTPUT = {Agent.ACPR, Agent.DEQW}
_WEIGHT = {Agent.DEWR, Agent.CEWW, Agent.CEWR}
_BIAS = {Agent.DEBR, Agent.ACBW, Agent.ACBR}
_COMPARISONS = {Op1.GT, Op1.GE, Op1.EQ}
_SUMS = {Op1.ACC, Op1.SACC}


def task_problems(task: SliceTask, config: NpuConfig) -> list[str]:
    """Everything about a slice task that the machine cannot do.

    The checks build on one another: descriptors are looked at only in a well-formed nest.
    """
    problems = list(_nest(task, config))
    if problems:
        return problems
    problems = [*_agents(task), *_act(task, config)]
    if problems:
        return problems
    problems += [*_alu(task, config), *carry_problems(task)]
    if task.plane:
        problems += _plane(task, task.plane, config)
    if task.window:
        problems += _window(task, task.window, config)
    if problems:
        return problems
    nest = Nest(task)
    for ndl in task.ndls:
        problems += [f"{ndl.agent.name}: {problem}" for problem in ndl_problems(nest, ndl, config)]
    return problems


def transfer_problems(descriptor: DmaDescriptor, config: NpuConfig) -> list[str]:
    """Everything about a transfer that the DMA descriptor cannot express."""
    limits = config.limits
    problems = []
    if len(descriptor.dims) > limits.dma_strided_dims:
        problems.append(f"{len(descriptor.dims)} strided dims, at most {limits.dma_strided_dims}")
    if not 1 <= descriptor.run < 1 << limits.dma_run_bits:
        problems.append(f"a run of {descriptor.run} bytes, 1..{(1 << limits.dma_run_bits) - 1}")
    for count, stride in descriptor.dims:
        if not 1 <= count <= limits.max_count:
            problems.append(f"a dim of count {count}, 1..{limits.max_count}")
        if not fits_signed(stride, limits.stride_bits):
            problems.append(f"a stride of {stride}, {limits.stride_bits} bits signed")
    if not 0 <= descriptor.lram < 1 << limits.address_bits:
        problems.append(f"LRAM address {descriptor.lram:#x}, {limits.address_bits} bits")
    return problems


def fits_signed(value: int, width: int) -> bool:
    """Whether a number fits a two's-complement field of ``width`` bits."""
    return -(1 << (width - 1)) <= value < 1 << (width - 1)


def _nest(task: SliceTask, config: NpuConfig) -> Iterator[str]:
    roles = [loop.role for loop in task.loops]
    if roles.count(Role.LANE) != 1 or roles.count(Role.GROUP) > 1:
        yield f"{roles.count(Role.LANE)} lane loops and {roles.count(Role.GROUP)} group loops, 1 and at most 1"
    outer = len(roles) - roles.count(Role.REDUCE)
    if Role.REDUCE in roles[:outer]:
        yield "a reduce loop outside another loop"
    for tag in (Tag.KERNEL_ROW, Tag.KERNEL_COLUMN):
        if sum(loop.tag is tag for loop in task.loops) > 1:
            yield f"more than one loop tagged {tag.name}"
    for loop in task.loops:
        if not 1 <= loop.extent <= config.limits.max_count:
            yield f"a loop of extent {loop.extent}, 1..{config.limits.max_count}"
    if task.vector < 1 or task.weights < 1 or (task.weights > 1 and Role.GROUP not in roles):
        yield f"vector {task.vector}, weights {task.weights} without a group loop to match"
    reduction = math.prod(loop.extent for loop in task.loops if loop.role is Role.REDUCE)
    if reduction > config.limits.max_reduction:
        yield f"a reduction over {reduction} terms, at most {config.limits.max_reduction}"
    if task.alu and task.alu.op1 in _COMPARISONS and reduction != 2:
        yield f"{task.alu.op1.name} over {reduction} terms, exactly 2"


def _agents(task: SliceTask) -> Iterator[str]:
    present = [ndl.agent for ndl in task.ndls]
    if len(set(present)) != len(present):
        yield "two descriptors of one agent"
    wanted = {Agent.REF, Agent.DEQW}
    if task.fill_value is None:
        wanted = {Agent.REF, *_COMPUTE, *_OUTPUT}
        if task.alu is None:
            yield "no ALU configuration"
        elif task.alu.op0 is Op0.MUL:
            wanted |= _WEIGHT
        if task.alu is not None and not task.alu.output:
            wanted -= _OUTPUT
        elif Agent.DEBR in present:
            wanted |= _BIAS
    if set(present) != wanted:
        odd = ", ".join(sorted(agent.name for agent in set(present) ^ wanted))
        yield f"descriptors missing or without use: {odd}"


def _act(task: SliceTask, config: NpuConfig) -> Iterator[str]:
    act, limits = task.act, config.limits
    if act.shift > limits.max_shift:
        yield f"a shift of {act.shift}, at most {limits.max_shift}"
    if not fits_signed(act.zero_point, limits.zero_point_bits):
        yield f"zero point {act.zero_point}, {limits.zero_point_bits} bits signed"
    if act.sum_bits not in (8, 16, 32, 48):
        yield f"a sum of {act.sum_bits} bits, 8, 16, 32 or 48"
    if not act.clip_min <= act.clip_max:
        yield f"clip bounds {act.clip_min}..{act.clip_max}"
    if (act.mode is ActMode.TABLE) != (task.table is not None):
        yield f"mode {act.mode.name} {'without' if task.table is None else 'with'} a table"
    if task.table is not None and len(task.table) != config.table_entries:
        yield f"a table of {len(task.table)} entries, {config.table_entries}"
    if task.fill_value is not None and not -(1 << 15) <= task.fill_value < 1 << 16:
        yield f"fill value {task.fill_value}, 16 bits"


def accumulator_lanes(data: DType, weight: DType | None) -> int:
    """Accumulators that one value occupies: byte products of integers, 16-bit halves of floats."""
    if data.is_float:
        return data.size
    return data.size * (weight.size if weight else 1)


def _alu(task: SliceTask, config: NpuConfig) -> Iterator[str]:
    data, weight, result = task.ndl(Agent.DEDR), task.ndl(Agent.DEWR), task.ndl(Agent.DEQW)
    if data is None:
        width = config.result_bus // (result.dtype.size if result else 1)
        if task.vector > width:
            yield f"{task.vector} lanes of a fill, at most {width}"
        return
    if task.alu and task.alu.op1 is Op1.CARRY:
        yield from _block(task, config)
        return
    kind = weight.dtype if weight else None
    if kind and not data.dtype.is_float and data.dtype.size * kind.size > 4:
        yield f"{data.dtype.value} x {kind.value} products, at most 4 byte products"
        return
    if task.weights > 16:
        yield f"{task.weights} weights in parallel, at most 16"
        return
    width = config.vector_width(data.dtype, kind, task.weights)
    if task.vector > width:
        yield f"{task.vector} lanes of {data.dtype.value}, at most {width}"
    lanes = accumulator_lanes(data.dtype, kind)
    if kind and lanes > 1 and task.alu and task.alu.op1 not in _SUMS:
        yield f"{task.alu.op1.name} of products that lie in {lanes} accumulators each, which fold on their own"
    needed = task.vector * task.weights * lanes
    if needed > config.accumulators:
        yield f"{needed} accumulators, {config.accumulators}"


def _block(task: SliceTask, config: NpuConfig) -> Iterator[str]:
    """A block of a transposition: bytes that go through PRAM side by side, so nothing may change them."""
    data, result, edge = task.ndl(Agent.DEDR), task.ndl(Agent.DEQW), config.block_bytes
    roles = {loop.role for loop in task.loops}
    if data is None or result is None or data.dtype is not result.dtype or data.dtype.is_float or data.dtype.size > 2:
        yield "a block of anything but integers of one or two bytes that stay as they are"
        return
    altered = task.act != ActConfig() or task.ndl(Agent.DEBR) is not None or task.plane or task.window
    if task.alu != AluConfig(Op0.DBYP, Op1.CARRY) or altered:
        yield "a block with work for ALU or ACT"
    if Role.GROUP not in roles or Role.REDUCE in roles:
        yield "a block without a group loop, or with a reduction"
    if task.vector * data.dtype.size != edge or task.weights != edge:
        yield f"a block of {task.weights} rows of {task.vector * data.dtype.size} bytes, not {edge} of {edge}"


def _plane(task: SliceTask, plane: Plane, config: NpuConfig) -> Iterator[str]:
    limits = config.limits
    positive = (plane.height, plane.width, plane.frame_width, plane.dilation_y, plane.dilation_x)
    if min(positive) < 1:
        yield f"plane sizes and dilations {positive}, at least 1"
    for stride in (plane.stride_y, plane.stride_x):
        if stride not in limits.conv_strides:
            yield f"convolution stride {stride}, one of {limits.conv_strides}"
    for name in ("row_stride", "phase_stride_y", "phase_stride_x"):
        if not fits_signed(getattr(plane, name), limits.stride_bits):
            yield f"plane {name} {getattr(plane, name)}, {limits.stride_bits} bits signed"
    columns = max((loop.extent for loop in task.loops if loop.tag is Tag.KERNEL_COLUMN), default=1)
    allowed = {0, plane.dilation_x * (columns // 2), plane.dilation_x * ((columns - 1) // 2)}
    if plane.pad_left not in allowed:
        yield f"left padding {plane.pad_left} of a kernel of {columns} columns, one of {sorted(allowed)}"
    data = task.ndl(Agent.DEDR)
    if data and plane.row_stride != plane.frame_width * data.dtype.size:
        yield f"plane rows {plane.row_stride} bytes apart, frame rows {plane.frame_width * data.dtype.size}"


def _window(task: SliceTask, window: OutputWindow, config: NpuConfig) -> Iterator[str]:
    limits = config.limits
    if window.frame_width < 1 or window.columns < 1 or window.first_column < 0:
        yield f"an output window of {window.columns} columns from {window.first_column} in {window.frame_width}"
    elif window.first_column + window.columns > window.frame_width:
        yield f"an output window up to column {window.first_column + window.columns} of {window.frame_width}"
    if task.plane and window.frame_width != task.plane.frame_width:
        yield f"a window of frame width {window.frame_width} over a plane of {task.plane.frame_width}"
    for stride in (window.stride_y, window.stride_x):
        if stride not in limits.conv_strides:
            yield f"output window stride {stride}, one of {limits.conv_strides}"
    for name in ("row_stride", "column_stride", "phase_stride_y", "phase_stride_x"):
        if not fits_signed(getattr(window, name), limits.stride_bits):
            yield f"window {name} {getattr(window, name)}, {limits.stride_bits} bits signed"
