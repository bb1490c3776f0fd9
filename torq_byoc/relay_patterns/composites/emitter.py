"""Short names for the primitive nodes that the decompositions are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import Rescale, TensorInfo
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.relay_patterns.composites.fixed_point import float_rescale, integer_rescale
from torq_byoc.relay_patterns.quant_params import QuantParams

NO_CLIP = (-math.inf, math.inf)


@dataclass(frozen=True)
class Emitter:
    """Appends primitive nodes of one composite operator (``origin``) to a graph; methods return tensor names."""

    builder: GraphBuilder
    origin: str

    def info(self, tensor: str) -> TensorInfo:
        """Shape, type and quantization of a tensor."""
        return self.builder.info(tensor)

    def constant(self, value: np.ndarray, hint: str) -> str:
        """A constant of this operator."""
        return self.builder.constant(value, hint=f"{self.origin}.{hint}")

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        dtype: DType,
        *,
        shape: Sequence[int] | None = None,
        rescale: Rescale | None = None,
        out: QuantParams | None = None,
        **attrs: Any,
    ) -> str:
        """Append any node; the shape is the inputs' broadcast shape unless given."""
        if shape is None:
            shape = np.broadcast_shapes(*(self.info(name).shape for name in inputs))
        return self.builder.emit(
            op,
            inputs,
            shape,
            dtype,
            attrs=attrs,
            rescale=rescale,
            scale=out.scale if out else None,
            zero_point=out.zero_point if out else 0,
            origin=self.origin,
        )

    def act(
        self, x: str, dtype: DType, rescale: Rescale | None = None, *, mode: str = "ACT", out: QuantParams | None = None
    ) -> str:
        """One ACT pass over x."""
        return self.emit("act", [x], dtype, rescale=rescale or self.plain(x), out=out, mode=mode)

    def shift(self, x: str, amounts: int | str, mode: str, dtype: DType = DType.INT32) -> str:
        """x shifted by one amount, or by a tensor of (0, amount) pairs; ``mode`` is LSL, LSR or ASR."""
        shape = self.info(x).shape
        if isinstance(amounts, int):
            pair = np.array([0, amounts], np.int32).reshape((1,) * len(shape) + (2,))
            amounts = self.constant(pair, f"{mode.lower()}{amounts}")
        return self.emit("act", [x, amounts], dtype, shape=shape, rescale=integer_rescale(), mode=mode)

    def pairs(self, values: str, weights: tuple[int, int] = (0, 1), offsets: tuple[int, int] = (0, 0)) -> str:
        """Run-time (bias, scale) entries for ``shift`` and ``scale_rows``: value * weights + offsets, int32[..., 2]."""
        column = self.reshape(values, (*self.info(values).shape, 1))
        selector = np.array(weights, np.int8).reshape((1,) * len(self.info(values).shape) + (2,))
        rescale = Rescale(np.array(offsets, np.int32), np.ones(2, np.int32), axis=-1, sum_bits=48)
        return self.mul(column, self.constant(selector, "pair"), DType.INT32, rescale)

    def broadcast(self, x: str, shape: Sequence[int]) -> str:
        """x repeated to a shape."""
        return x if self.info(x).shape == tuple(shape) else self.emit("broadcast", [x], self.info(x).dtype, shape=shape)

    def table(
        self,
        x: str,
        table: np.ndarray,
        index: Rescale,
        dtype: DType,
        *,
        zero_point: int = 0,
        clip: tuple[float, float] = NO_CLIP,
        out: QuantParams | None = None,
    ) -> str:
        """One look-up a value: ``index`` maps x to its position, ``zero_point`` and ``clip`` act on the entry."""
        attrs: dict[str, Any] = {"table": table, "out_zero_point": zero_point, "clip_min": clip[0], "clip_max": clip[1]}
        return self.emit("table", [x], dtype, rescale=index, out=out, **attrs)

    def mul(
        self,
        a: str,
        b: str,
        dtype: DType,
        rescale: Rescale | None = None,
        *,
        zero_point: int = 0,
        out: QuantParams | None = None,
    ) -> str:
        """(a - zero_point) * b, broadcast."""
        attrs: dict[str, Any] = {"zero_point": zero_point} if zero_point else {}
        return self.emit("mul", [a, b], dtype, rescale=rescale or self.plain(a), out=out, **attrs)

    def sum2(
        self,
        a: str,
        b: str,
        weights: tuple[float, float],
        dtype: DType,
        rescale: Rescale | None = None,
        *,
        out: QuantParams | None = None,
    ) -> str:
        """a * weights[0] + b * weights[1], broadcast."""
        return self.emit("sum2", [a, b], dtype, rescale=rescale or self.plain(a), out=out, weights=weights)

    def maximum(self, a: str, b: str, *, out: QuantParams | None = None) -> str:
        """The larger of a and b, same type."""
        return self.emit("maximum", [a, b], self.info(a).dtype, rescale=self.plain(a), out=out)

    def minimum(self, a: str, b: str, *, out: QuantParams | None = None) -> str:
        """The smaller of a and b, same type."""
        return self.emit("minimum", [a, b], self.info(a).dtype, rescale=self.plain(a), out=out)

    def reduce(self, x: str, kind: str, axis: int, dtype: DType, rescale: Rescale | None = None) -> str:
        """Reduce one axis to size 1; ``kind`` is sum, max or min."""
        shape = list(self.info(x).shape)
        axis %= len(shape)
        shape[axis] = 1
        rescale = rescale or self.plain(x)
        return self.emit("reduce", [x], dtype, shape=shape, rescale=rescale, kind=kind, axes=(axis,), keepdims=True)

    def to_codes(self, x: str, out: QuantParams) -> str:
        """Float x, already in units of output codes, rounded to codes: ties to even, then the zero point."""
        rescale = replace(float_rescale(), zero_point=out.zero_point, rounding=Rounding.NTE)
        return self.act(x, out.dtype, rescale, mode="F2I", out=out)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """The same elements under another shape."""
        return self.emit("reshape", [x], self.info(x).dtype, shape=shape)

    def bitcast(self, x: str, dtype: DType) -> str:
        """The same bytes read as another type of the same size."""
        return self.emit("bitcast", [x], dtype)

    def plain(self, x: str) -> Rescale:
        """The rescale that changes nothing, for data of x's type."""
        return float_rescale() if self.info(x).dtype.is_float else integer_rescale()
