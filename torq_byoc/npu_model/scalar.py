"""The scalar twin of the vectorised simulator: one element at a time, straight from the definitions of ``isa.py``.

It shares nothing with the vectorised one but the ACT arithmetic of single values, and is meant for tests and for
settling what a descriptor means.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Agent, Ndl, Op0, Op1, Role, SliceTask, Tag
from torq_byoc.npu_model.numerics import apply_act

_FORMATS = {
    DType.INT8: "<b",
    DType.UINT8: "<B",
    DType.INT16: "<h",
    DType.UINT16: "<H",
    DType.INT32: "<i",
    DType.FP32: "<f",
}
_UNSIGNED = (DType.UINT8, DType.UINT16)
_BOOLEAN = (Op1.GT, Op1.GE, Op1.EQ, Op1.AND, Op1.OR, Op1.XOR, Op1.NOT, Op1.AMAX, Op1.AMIN)


def execute_task_scalar(task: SliceTask, lram: np.ndarray, pram: dict[tuple[int, ...], float] | None = None) -> None:
    """Execute one slice task element by element.

    Args:
        task: the task.
        lram: uint8 array, addressed from 0; written in place.
        pram: partial sums of the slice by point of the outer loops, changed in place; by default it has none.

    Raises:
        IndexError: the task leaves the memory.
        KeyError: it continues from partial sums that are not there.
    """
    kept = {} if pram is None else pram
    before = dict(kept)
    kept.clear()
    machine = _Machine(task, lram.data, before, kept)
    outer = [range(loop.extent) for loop in task.loops if loop.role is not Role.REDUCE]
    for point in itertools.product(*outer):
        machine.element(point)


def _walked(ndl: Ndl, index: tuple[int, ...], skip: frozenset[int] = frozenset()) -> int:
    """Address of a descriptor at a point of the nest, dim by dim: each takes its part of the loop's index and
    leaves the rest to the dims inside it."""
    rest = dict(enumerate(index))
    address = ndl.base
    for dim in ndl.dims:
        if dim.loop in skip:
            continue
        part, rest[dim.loop] = divmod(rest[dim.loop], dim.step)
        address += part * dim.stride
    return address


@dataclass(frozen=True)
class _Machine:
    """A slice configured for one task."""

    task: SliceTask
    memory: memoryview
    before: dict[tuple[int, ...], float]
    """Partial sums that the task before left."""
    kept: dict[tuple[int, ...], float]
    """Partial sums that this task leaves."""

    @property
    def lane(self) -> int:
        """Position of the lane loop."""
        return next(i for i, loop in enumerate(self.task.loops) if loop.role is Role.LANE)

    def element(self, point: tuple[int, ...]) -> None:
        """Compute and write the result of one point of the outer loops, or keep its partial sum."""
        if self.task.alu is not None and not self.task.alu.output:
            self.kept[point] = self.accumulate(point)[0]
            return
        target = self.target(point)
        if target is None:
            return
        result = self.task.ndl(Agent.DEQW)
        assert result is not None
        if self.task.fill_value is not None:
            word = (self.task.fill_value & 0xFFFF).to_bytes(2, "little")
            self.store(target, (word * 2)[: result.dtype.size])
            return
        total, is_float = self.accumulate(point)
        bias, scale = self.bias(point)
        if is_float:
            acc = np.array([total], np.float64)
        else:
            acc = np.array([_wrapped(int(total), self.task.act.sum_bits)], np.int64)
        value = apply_act(acc, self.task.act, bias, scale, result.dtype, is_float, self.task.table)
        self.store(target, value.tobytes())

    def accumulate(self, point: tuple[int, ...]) -> tuple[float, bool]:
        """P after the reduce loops, carried sums included, and whether it is a float."""
        assert self.task.alu is not None
        alu = self.task.alu
        data = self.task.ndl(Agent.DEDR)
        assert data is not None
        values = [self.operand(index) for index in self.reduce_points(point)]
        unsigned_bits = 8 * data.dtype.size if alu.op0 is Op0.DBYP and data.dtype in _UNSIGNED else 0
        total = _folded(alu.op1, values, unsigned_bits)
        if not alu.clear:
            total = _folded(alu.op1, [self.before[point], total], unsigned_bits)
        return total, data.dtype.is_float and alu.op1 not in _BOOLEAN

    def reduce_points(self, point: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Full loop indices, reduce loops innermost."""
        inner = [range(loop.extent) for loop in self.task.loops if loop.role is Role.REDUCE]
        for tail in itertools.product(*inner):
            yield (*point, *tail)

    def operand(self, index: tuple[int, ...]) -> float:
        """x of one step: D, or D times W."""
        assert self.task.alu is not None
        value = self.data(index)
        if self.task.alu.op0 is Op0.DBYP:
            return value
        weight = self.task.ndl(Agent.DEWR)
        assert weight is not None
        return value * self.load(_walked(weight, index), weight.dtype)

    def data(self, index: tuple[int, ...]) -> float:
        """The D operand at one point, through the padding and stride logic where there is a plane."""
        ndl, plane = self.task.ndl(Agent.DEDR), self.task.plane
        assert ndl is not None
        if plane is None:
            return self.load(_walked(ndl, index), ndl.dtype)
        skip, taps = {self.lane}, {Tag.KERNEL_ROW: 0, Tag.KERNEL_COLUMN: 0}
        for position, loop in enumerate(self.task.loops):
            if loop.tag in taps:
                taps[loop.tag] = index[position]
                skip.add(position)
        y, x = divmod(index[self.lane], plane.frame_width)
        row = y * plane.stride_y + taps[Tag.KERNEL_ROW] * plane.dilation_y - plane.pad_top
        column = x * plane.stride_x + taps[Tag.KERNEL_COLUMN] * plane.dilation_x - plane.pad_left
        if not (0 <= row < plane.height and 0 <= column < plane.width):
            return plane.pad_value
        inside = (row % plane.stride_y) * plane.phase_stride_y + (column % plane.stride_x) * plane.phase_stride_x
        inside += (row // plane.stride_y) * plane.row_stride + (column // plane.stride_x) * ndl.dtype.size
        return self.load(_walked(ndl, index, frozenset(skip)) + inside, ndl.dtype)

    def bias(self, point: tuple[int, ...]) -> tuple[float, int | None]:
        """Bias and scale of one point; 0 and None without a B operand."""
        ndl = self.task.ndl(Agent.DEBR)
        if ndl is None:
            return 0, None
        address = _walked(ndl, point)
        if ndl.dtype is DType.FP32:
            return self.load(address, DType.FP32), None
        return self.load(address, DType.INT32), int(self.load(address + 4, DType.INT32))

    def target(self, point: tuple[int, ...]) -> int | None:
        """Where the result of a point goes; None when the output window drops it."""
        ndl, window = self.task.ndl(Agent.DEQW), self.task.window
        assert ndl is not None
        if window is None:
            return _walked(ndl, point)
        y, x = divmod(point[self.lane], window.frame_width)
        x -= window.first_column
        if not 0 <= x < window.columns:
            return None
        phase = (y % window.stride_y) * window.phase_stride_y + (x % window.stride_x) * window.phase_stride_x
        place = (y // window.stride_y) * window.row_stride + (x // window.stride_x) * window.column_stride
        return _walked(ndl, point, frozenset({self.lane})) + phase + place

    def load(self, address: int, dtype: DType) -> float:
        """One element as a Python number."""
        raw = bytes(self.memory[address : address + dtype.size])
        if address < 0 or len(raw) != dtype.size:
            raise IndexError(f"read of {dtype.size} bytes at {address}")
        if dtype is DType.BF16:
            return struct.unpack("<f", b"\0\0" + raw)[0]
        return struct.unpack(_FORMATS[dtype], raw)[0]

    def store(self, address: int, raw: bytes) -> None:
        """Write the bytes of one element."""
        if not 0 <= address <= len(self.memory) - len(raw):
            raise IndexError(f"write of {len(raw)} bytes at {address}")
        self.memory[address : address + len(raw)] = raw


def _wrapped(total: int, bits: int) -> int:
    total &= (1 << bits) - 1
    return total - (1 << bits) if total >> (bits - 1) else total


def _folded(op1: Op1, values: list[float], unsigned_bits: int) -> float:
    """P after all steps; ``unsigned_bits`` is the width of an unsigned x, 0 when x is signed."""
    if op1 in (Op1.ACC, Op1.SACC):
        return sum(-value if op1 is Op1.SACC and step % 2 else value for step, value in enumerate(values))
    if op1 in (Op1.BYP, Op1.CARRY):
        return values[-1]
    if op1 is Op1.MUL:
        product = 1.0
        for value in values:
            product *= value
        return product
    if op1 in (Op1.MAX, Op1.MIN, Op1.AMAX, Op1.AMIN):
        best = _extremum(values, smallest=op1 in (Op1.MIN, Op1.AMIN))
        return values[best] if op1 in (Op1.MAX, Op1.MIN) else best
    if op1 in (Op1.GT, Op1.GE, Op1.EQ):
        first, second = values
        return int(first > second if op1 is Op1.GT else first >= second if op1 is Op1.GE else first == second)
    if op1 in (Op1.AND, Op1.OR, Op1.XOR, Op1.NOT):
        return _logical(op1, [value != 0 for value in values])
    return _bitwise(op1, [int(value) for value in values], unsigned_bits)


def _extremum(values: list[float], smallest: bool) -> int:
    """Index of the first NaN, else of the first extremum."""
    best = 0
    for step, value in enumerate(values):
        if value != value:
            return step
        if value < values[best] if smallest else value > values[best]:
            best = step
    return best


def _logical(op1: Op1, values: list[bool]) -> int:
    if op1 is Op1.AND:
        return int(all(values))
    if op1 is Op1.XOR:
        return sum(values) % 2
    return int(any(values) != (op1 is Op1.NOT))


def _bitwise(op1: Op1, values: list[int], unsigned_bits: int) -> int:
    total = values[0]
    for value in values[1:]:
        if op1 is Op1.BAND:
            total &= value
        elif op1 is Op1.BXOR:
            total ^= value
        else:
            total |= value
    if op1 is not Op1.BNOT:
        return total
    return ~total & ((1 << unsigned_bits) - 1) if unsigned_bits else ~total
