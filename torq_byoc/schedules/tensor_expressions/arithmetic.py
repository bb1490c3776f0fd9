"""The arithmetic of ACT as scalar expressions: what ``npu_model.numerics`` does to arrays.

Expressions are int64 for integer accumulators and float64, then fp32, for float ones.  Products beyond 64
bits are held as high * 2^32 + low, so every function is exact where its numpy twin is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torq_byoc.kernels.graph import Node, OpGraph, Rescale
from torq_byoc.kernels.rescaling import act_config
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.npu_model.numerics import clip_bounds, register_bound
from torq_byoc.schedules.tensor_expressions.definition import Operands

_LOW_WORD = 0xFFFFFFFF


def integer(value: int) -> Any:
    """An int64 constant."""
    from tvm import tirx

    return tirx.const(value, "int64")


def widen(element: Any, dtype: DType) -> Any:
    """An operand element as the ALU accumulates it: int64, or float64 for floats."""
    return element.astype("float64" if dtype.is_float else "int64")


@dataclass(frozen=True, eq=False)
class ActStage:
    """The ACT unit at the end of a node.

    Attributes:
        rescale: the node's, or None.
        operands: placeholders of bias and scale.
        shape, out: shape and type of the output.
        is_float: accumulators are floats.
        sum_bits: width of the combined sum.
    """

    rescale: Rescale | None
    operands: Operands
    shape: tuple[int, ...]
    out: DType
    is_float: bool
    sum_bits: int

    @classmethod
    def of(cls, graph: OpGraph, node: Node, operands: Operands) -> ActStage:
        """The ACT stage of a node; its first input says whether accumulators are floats."""
        info, types = graph.tensors[node.output], [graph.tensors[name].dtype for name in node.inputs]
        bits = act_config(node.rescale, *types).sum_bits
        return cls(node.rescale, operands, info.shape, info.dtype, types[0].is_float, bits)

    @property
    def clip(self) -> tuple[float, float]:
        """Clip bounds in the output type; infinite without a rescale."""
        return (-math.inf, math.inf) if self.rescale is None else (self.rescale.clip_min, self.rescale.clip_max)

    def requantize(self, acc: Any, index: Sequence[Any]) -> Any:
        """Mode ``ACT``: from an accumulator to the output element at a position."""
        return self.finish(self.biased(acc, index), index)

    def biased(self, acc: Any, index: Sequence[Any]) -> Any:
        """The accumulator, wrapped to its width, plus its bias: int64, or fp32 for floats."""
        if self.is_float:
            total = acc.astype("float32")
            return total if self.rescale is None else total + self._entry(self.operands.bias, index).astype("float32")
        total = wrap(acc, self.sum_bits)
        return total if self.rescale is None else total + self._entry(self.operands.bias, index).astype("int64")

    def scaled(self, total: Any, index: Sequence[Any]) -> Any:
        """Scale and rounding shift of an int64 total."""
        if self.rescale is None:
            return total
        scale = None if self.operands.scale is None else self._entry(self.operands.scale, index).astype("int64")
        return scaled(total, scale, self.rescale.shift, self.rescale.rounding)

    def finish(self, total: Any, index: Sequence[Any]) -> Any:
        """What follows the bias: scale, shift, zero point, clip, narrowing."""
        if self.is_float:
            return clip_float(total, *self.clip).astype(self.out.value)
        return self.narrow(self.scaled(total, index))

    def narrow(self, value: Any) -> Any:
        """Zero point, clip and narrowing of an int64."""
        if self.rescale is not None:
            value = value + integer(self.rescale.zero_point)
        return saturate(value, self.out, *self.clip)

    def _entry(self, values: Any, index: Sequence[Any]) -> Any:
        """The bias or scale of one output element: single, along an axis, or one a pixel."""
        count = int(values.shape[0])
        if count == 1 or self.rescale is None or self.rescale.axis is None:
            return values[0]
        axis = self.rescale.axis % len(self.shape)
        if count == self.shape[axis]:
            return values[index[axis]]
        return values[index[-2] * self.shape[-1] + index[-1]]


def wrap(value: Any, bits: int) -> Any:
    """Two's complement of ``bits`` bits, sign-extended to int64."""
    if bits == 32:
        return value.astype("int32").astype("int64")
    spare = integer(64 - bits)
    return (value << spare) >> spare


def saturate(value: Any, out: DType, clip_min: float = -math.inf, clip_max: float = math.inf) -> Any:
    """Clip an int64 to the bounds and to the type, and narrow it."""
    from tvm import te

    low, high = clip_bounds(clip_min, clip_max, out)
    return te.min(te.max(value, integer(low)), integer(high)).astype(out.value)


def clip_float(value: Any, clip_min: float, clip_max: float) -> Any:
    """Clip an fp32 to finite bounds."""
    from tvm import te, tirx

    low, high = register_bound(clip_min), register_bound(clip_max)
    if low != -math.inf:
        value = te.max(value, tirx.const(low, "float32"))
    return te.min(value, tirx.const(high, "float32")) if high != math.inf else value


def scaled(total: Any, scale: Any | None, shift: int, rounding: Rounding) -> Any:
    """``total * scale`` shifted right with rounding; results beyond 62 bits are held at that bound."""
    from tvm import te

    if scale is None and shift == 0:
        return total
    factor = integer(1) if scale is None else scale
    partial = (total & integer(_LOW_WORD)) * factor
    high = (total >> integer(32)) * factor + (partial >> integer(32))
    low = partial & integer(_LOW_WORD)
    if shift and rounding is not Rounding.OFF:
        addend = _rounding_addend(total, low, high, shift, rounding)
        low = low + (addend & integer(_LOW_WORD))
        high = high + (addend >> integer(32)) + (low >> integer(32))
        low = low & integer(_LOW_WORD)
    if shift >= 32:
        return high >> integer(shift - 32)
    bound = 1 << (30 + shift)
    high = te.min(te.max(high, integer(-bound)), integer(bound - 1))
    return (high << integer(32 - shift)) + (low >> integer(shift))


def _rounding_addend(total: Any, low: Any, high: Any, shift: int, rounding: Rounding) -> Any:
    """What is added to a product before it is shifted."""
    from tvm import tirx

    half = integer(1 << (shift - 1))
    if rounding is Rounding.NTE:
        odd = (low >> integer(shift)) if shift < 32 else (high >> integer(shift - 32))
        return half - integer(1) + (odd & integer(1))
    if rounding is Rounding.DBL and shift > 31:
        return half + tirx.Select(total >= integer(0), integer(1 << 30), integer(-(1 << 30)))
    return half
