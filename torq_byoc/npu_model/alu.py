"""The ALU of the vectorised simulator: folds D, or D x W, over the reduce axes.

Arrays carry one axis a loop (see ``operands.py``): ``outer`` axes first, reduce axes last, extent 1 where a loop
does not move the operand.  Integer results are exact modulo 2^64, which is all that a wrapping accumulator of
at most 48 bits asks for.  Two strategies give the same integers:

* products that both operands share reuse of (convolutions, matrix products) become one matrix product, in
  fp32 or float64 by the widest slices of the reduction whose sums stay exact there;
* everything else is folded tap by tap, each tap a whole-array operation over the outer axes, or for long
  reductions without weights by one ``ufunc.reduce``.

NOT and BNOT negate the OR of all steps, in the width of the operand; MAX and MIN of a NaN are NaN; AMAX and AMIN
give the first NaN, else the first extremum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import AluConfig, Op1
from torq_byoc.npu_model.operands import refuse

_TAP_LIMIT = 64
"""Reductions up to this many steps are folded tap by tap."""

_LARGE_TAP = 2048
"""Taps of at least this many elements hide the cost of the Python loop."""

_SHORT_CHUNK = 128
"""A matrix product in fp32 pays only while at least this many steps are summed at once."""

_SUMS = frozenset({Op1.ACC, Op1.SACC})
_FOLDS = {
    Op1.ACC: np.add,
    Op1.SACC: np.add,
    Op1.MUL: np.multiply,
    Op1.MAX: np.maximum,
    Op1.MIN: np.minimum,
    Op1.AND: np.logical_and,
    Op1.OR: np.logical_or,
    Op1.XOR: np.logical_xor,
    Op1.NOT: np.logical_or,
    Op1.BAND: np.bitwise_and,
    Op1.BOR: np.bitwise_or,
    Op1.BXOR: np.bitwise_xor,
    Op1.BNOT: np.bitwise_or,
}
_COMPARISONS = {Op1.GT: np.greater, Op1.GE: np.greater_equal, Op1.EQ: np.equal}
_LOGICAL = frozenset({Op1.AND, Op1.OR, Op1.XOR, Op1.NOT})
_BITWISE = frozenset({Op1.BAND, Op1.BOR, Op1.BXOR, Op1.BNOT})


def accumulates_float(alu: AluConfig, data: DType) -> bool:
    """Whether P holds floats: float data, and an operation that does not leave bits, booleans or indices."""
    return data.is_float and alu.op1 not in _COMPARISONS and alu.op1 not in _LOGICAL | {Op1.AMAX, Op1.AMIN}


@dataclass(frozen=True)
class AluPlan:
    """How one task's ALU work is done; depends on types and shapes only.

    Attributes:
        outer: number of outer axes; the rest are reduce axes.
        reduce: extents of the reduce axes.
        matrix: the fold is a matrix product.
        work: numpy type that D (and W) are wanted in; None keeps the operand's own.
        chunk: reduction steps a matrix product may sum exactly in ``work``.
    """

    alu: AluConfig
    outer: int
    reduce: tuple[int, ...]
    matrix: bool
    work: np.dtype | None
    chunk: int

    @classmethod
    def of(
        cls,
        alu: AluConfig,
        data: DType,
        weight: DType | None,
        data_shape: tuple[int, ...],
        weight_shape: tuple[int, ...] | None,
        reduce: tuple[int, ...],
    ) -> AluPlan:
        """Choose the strategy.

        Args:
            data_shape, weight_shape: operand shapes over outer and reduce axes; weights None without MUL.
            reduce: full extents of the reduce axes.
        """
        _check(alu, data, weight, reduce)
        outer = len(data_shape) - len(reduce)
        steps = math.prod(reduce)
        matrix = (
            weight_shape is not None
            and alu.op1 in _SUMS
            and _wants_matrix(data_shape[:outer], weight_shape[:outer], steps)
        )
        work, chunk = _work_type(alu, data, weight, steps, matrix)
        return cls(alu, outer, reduce, matrix, work, chunk)

    def run(self, data: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Accumulators over the outer axes (extent 1 where nothing differs), of some integer or float type."""
        op1 = self.alu.op1
        if self.matrix and weight is not None:
            return _matrix_product(self, data, weight)
        if op1 in (Op1.AMAX, Op1.AMIN):
            return self._arg_extremum(self._product(data, weight))
        if op1 in (Op1.BYP, Op1.CARRY):
            return self._step(data, weight, tuple(extent - 1 for extent in self.reduce))
        if op1 in _COMPARISONS:
            first, second = (self._step(data, weight, index) for index in self._steps())
            return _COMPARISONS[op1](first, second).astype(np.int8)
        total = self._fold(data, weight)
        if op1 is Op1.BNOT:
            return ~total
        return (~total if op1 is Op1.NOT else total).astype(np.int8) if op1 in _LOGICAL else total

    def _steps(self) -> Iterator[tuple[int, ...]]:
        """Indices of the reduce loops, in order."""
        return itertools.product(*map(range, self.reduce))

    def _tap(self, operand: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
        """The operand at one reduce step."""
        extents = operand.shape[self.outer :]
        place: list[Any] = [slice(None)] * self.outer
        place += (i if extent > 1 else 0 for i, extent in zip(index, extents, strict=True))
        return operand[tuple(place)]

    def _product(self, data: np.ndarray, weight: np.ndarray | None, into: np.ndarray | None = None) -> np.ndarray:
        """x of the hardware: D as it is, or D x W in the working type."""
        return data if weight is None else np.multiply(data, weight, out=into, dtype=self.work)

    def _step(
        self, data: np.ndarray, weight: np.ndarray | None, index: tuple[int, ...], into: np.ndarray | None = None
    ) -> np.ndarray:
        """x at one reduce step; a view of D when there are no weights."""
        return self._product(self._tap(data, index), None if weight is None else self._tap(weight, index), into)

    def _fold(self, data: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """P after all steps, in the working type."""
        op1, fold = self.alu.op1, _FOLDS[self.alu.op1]
        count = math.prod(self.reduce)
        if weight is None and count > _TAP_LIMIT and math.prod(data.shape[: self.outer]) < _LARGE_TAP:
            return self._fold_at_once(data)
        steps = self._steps()
        first = self._step(data, weight, next(steps))
        if count == 1:
            return first != 0 if op1 in _LOGICAL else first
        total = first != 0 if op1 in _LOGICAL else np.array(first, self.work or first.dtype)
        scratch = None if weight is None else np.empty(total.shape, self.work)
        for number, index in enumerate(steps, 1):
            x = self._step(data, weight, index, scratch)
            (np.subtract if op1 is Op1.SACC and number % 2 else fold)(total, x, out=total)
        return total

    def _fold_at_once(self, data: np.ndarray) -> np.ndarray:
        full = np.broadcast_to(data, data.shape[: self.outer] + self.reduce)
        if self.alu.op1 is Op1.SACC:
            full = full * _signs(self.reduce, self.work)
        return _FOLDS[self.alu.op1].reduce(full, axis=tuple(range(self.outer, full.ndim)), dtype=self.work)

    def _arg_extremum(self, x: np.ndarray) -> np.ndarray:
        full = np.broadcast_to(x, x.shape[: self.outer] + self.reduce)
        flat = full.reshape(*x.shape[: self.outer], -1)
        return flat.argmax(axis=-1) if self.alu.op1 is Op1.AMAX else flat.argmin(axis=-1)


def _check(alu: AluConfig, data: DType, weight: DType | None, reduce: tuple[int, ...]) -> None:
    """Refuse what the ALU cannot do and the strategies rely on."""
    steps = math.prod(reduce)
    if alu.op1 in _COMPARISONS and steps != 2:
        raise refuse(f"{alu.op1.name} compares two values", f"the reduce loops have {steps} steps")
    if weight and (data.is_float != weight.is_float or (not data.is_float and data.size * weight.size > 4)):
        raise refuse("no such product", f"{data.value} x {weight.value}, at most four byte products or bf16 x bf16")
    if alu.op1 in _BITWISE and data.is_float:
        raise refuse(f"{alu.op1.name} works on integers", f"data of type {data.value}")
    if alu.op1 is Op1.MUL and not data.is_float:
        raise refuse("a product reduction works on floats", f"data of type {data.value}")


def _wants_matrix(data: tuple[int, ...], weight: tuple[int, ...], steps: int) -> bool:
    """Whether a matrix product beats tap by tap: both operands are reused, or one is over a long reduction."""
    rows = any(d == 1 < w for d, w in zip(data, weight, strict=True))
    columns = any(w == 1 < d for d, w in zip(data, weight, strict=True))
    return (rows and columns) or ((rows or columns) and steps > _TAP_LIMIT)


def _work_type(
    alu: AluConfig, data: DType, weight: DType | None, steps: int, matrix: bool
) -> tuple[np.dtype | None, int]:
    """The working type and, for a matrix product, how many steps it sums exactly."""
    if data.is_float:
        exact_anyway = weight is None and alu.op1 not in _SUMS | {Op1.MUL}
        return (None if exact_anyway else np.dtype(np.float64)), steps
    if weight is None and alu.op1 not in _SUMS:
        return None, steps
    largest = _largest(data) * (_largest(weight) if weight else 1)
    if matrix:
        single = (1 << 24) // largest
        if single >= min(steps, _SHORT_CHUNK):
            return np.dtype(np.float32), single
        return np.dtype(np.float64), (1 << 53) // largest
    return np.dtype(np.int32 if largest * steps < 1 << 31 else np.int64), steps


def _largest(dtype: DType) -> int:
    low, high = dtype.integer_range
    return max(-low, high)


def _signs(reduce: tuple[int, ...], work: np.dtype | None) -> np.ndarray:
    """+1 and -1 in turn over the flat reduce index."""
    return (1 - 2 * (np.arange(math.prod(reduce)) % 2)).reshape(reduce).astype(work)


def _matrix_product(plan: AluPlan, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sum of D x W over the reduce axes: axes of D only are columns, of W only rows, of both a batch."""
    outer, reduce = plan.outer, plan.reduce
    rows = [i for i in range(outer) if data.shape[i] == 1 < weight.shape[i]]
    columns = [i for i in range(outer) if weight.shape[i] == 1 < data.shape[i]]
    batch = [i for i in range(outer) if i not in rows and i not in columns]
    folded = list(range(outer, outer + len(reduce)))
    batches = tuple(data.shape[i] for i in batch)
    row_shape, column_shape = tuple(weight.shape[i] for i in rows), tuple(data.shape[i] for i in columns)
    count, steps = math.prod(batches), math.prod(reduce)

    if plan.alu.op1 is Op1.SACC:
        weight = weight * _signs(reduce, plan.work)
    left = _arranged(weight, batch + rows + folded, batches + row_shape + reduce, plan.work)
    right = _arranged(data, batch + folded + columns, batches + reduce + column_shape, plan.work)
    left = left.reshape(count, math.prod(row_shape), steps)
    right = right.reshape(count, steps, math.prod(column_shape))
    total = _chunked_product(left, right, plan.chunk)
    order = batch + rows + columns
    total = total.reshape(batches + row_shape + column_shape)
    return total.transpose([order.index(i) for i in range(outer)])


def _arranged(x: np.ndarray, order: list[int], shape: tuple[int, ...], work: np.dtype | None) -> np.ndarray:
    """The axes in the given order at full extent, contiguous, in the working type."""
    rest = [i for i in range(x.ndim) if i not in order]
    moved = x.transpose(order + rest)
    return np.ascontiguousarray(np.broadcast_to(moved.reshape(moved.shape[: len(order)]), shape), work)


def _chunked_product(left: np.ndarray, right: np.ndarray, chunk: int) -> np.ndarray:
    """Matrix products of stacks [n, rows, k] x [n, k, columns], at most ``chunk`` steps summed in their own type."""
    steps = left.shape[-1]
    if steps <= chunk:
        return np.matmul(left, right)
    parts = (np.matmul(left[..., k : k + chunk], right[:, k : k + chunk]) for k in range(0, steps, chunk))
    total = next(parts).astype(np.int64)
    for part in parts:
        total += part.astype(np.int64)
    return total
