"""Max and average pools, 1-D and 2-D."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, wildcard

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns import affine
from torq_byoc.relay_patterns.affine import Affine
from torq_byoc.relay_patterns.arithmetic import float_rescale, requantization, wide_sum
from torq_byoc.relay_patterns.legality import float_reasons, int_attr, quantized_reasons
from torq_byoc.relay_patterns.lowering import Lowering, ints, quant_of
from torq_byoc.relay_patterns.matchers import activated, dequantized, one_of, quantized
from torq_byoc.relay_patterns.quant_params import QuantParams
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, op_name, static_shape

_POOLS = ("relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.nn.max_pool1d", "relax.nn.avg_pool1d")


@dataclass(frozen=True)
class Window:
    """A pool seen as 2-D: its output and input planes, and the pads it needs (top, left, bottom, right)."""

    plane: tuple[int, int]
    source: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    declared: tuple[int, int, int, int]

    @classmethod
    def of(cls, call: Call) -> Window:
        """The window of a pool call; 1-D pools get height 1."""
        attrs = call.attrs
        plane, source = static_shape(call)[2:], static_shape(call.args[0])[2:]
        kernel, strides, dilations = ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation)
        pads = ints(attrs.padding)
        if len(plane) == 1:
            plane, source, kernel = (1, *plane), (1, *source), (1, *kernel)
            strides, dilations, pads = (1, *strides), (1, *dilations), (0, pads[0], 0, pads[1])
        return cls(plane, source, kernel, strides, dilations, pads)  # type: ignore[arg-type]

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Pads that make every window fit: rounding the output size up needs more at the end than declared."""
        top, left, _, _ = self.declared
        ends = [
            max(0, (self.plane[i] - 1) * self.strides[i] + self._reach(i) - self.source[i] - (top, left)[i])
            for i in range(2)
        ]
        return top, left, ends[0], ends[1]

    def _reach(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def counts(self, include_pads: bool) -> np.ndarray:
        """Elements that each output pixel averages: int64[OH * OW].

        Declared pads count when ``include_pads``; what rounding up adds beyond them never does.
        """
        per_axis = []
        for axis in range(2):
            begin, end = self.declared[axis], self.declared[2 + axis]
            low, high = (-begin, self.source[axis] + end) if include_pads else (0, self.source[axis])
            first = np.arange(self.plane[axis])[:, None] * self.strides[axis] - begin
            taps = first + np.arange(self.kernel[axis]) * self.dilations[axis]
            per_axis.append(((taps >= low) & (taps < high)).sum(axis=1))
        return np.outer(*per_axis).reshape(-1)

    def attrs(self, pad_value: float) -> dict[str, object]:
        """The attributes of the NPU operator."""
        return {
            "kernel": self.kernel,
            "strides": self.strides,
            "pads": self.pads,
            "dilations": self.dilations,
            "pad_value": pad_value,
        }


def _quantized_graph() -> DFPattern:
    return quantized(activated(one_of(_POOLS, dequantized())))


def _float_graph() -> DFPattern:
    return activated(one_of(_POOLS, wildcard()))


def _pool(view: View) -> Call:
    return view.require(*_POOLS)


def _common(view: View) -> list[str]:
    call = _pool(view)
    reasons = [] if str(call.attrs.layout) in ("NCHW", "NCW") else [f"its layout is {call.attrs.layout}, not NCHW"]
    if not reasons and _is_average(call) and not Window.of(call).counts(_includes_pads(call)).all():
        reasons.append("a window lies wholly in the padding")
    return reasons


def _is_average(call: Call) -> bool:
    return "avg" in op_name(call)


def _includes_pads(call: Call) -> bool:
    return bool(int_attr(call.attrs.count_include_pad))


def check_quantized(view: View) -> list[str]:
    """Layout NCHW (NCW); data and result quantized per tensor; every average has at least one element."""
    return _common(view) + quantized_reasons(view, _pool(view).args[0])


def check_float(view: View) -> list[str]:
    """Layout NCHW (NCW); float32; every average has at least one element."""
    return _common(view) + float_reasons(view)


def lower_quantized(low: Lowering) -> str:
    """maxpool, or sumpool with the division in the rescale (one multiplier a pixel when windows differ)."""
    call = _pool(low.view)
    source, out = quant_of(low.view.operand(call.args[0])), low.out
    assert out is not None
    window = Window.of(call)
    if not _is_average(call):
        rescale = requantization(source.scale / out.scale, -source.zero_point, out, bounds=low.bounds())
        return _emit(low, call, "maxpool", window.attrs(source.dtype.integer_range[0]), out, rescale)
    counts = window.counts(_includes_pads(call))
    if np.all(counts == counts[0]):
        counts = counts[:1]
    taps = window.kernel[0] * window.kernel[1]
    rescale = requantization(
        source.scale / (out.scale * counts),
        -taps * source.zero_point,
        out,
        bounds=low.bounds(),
        axis=2,
        wide=wide_sum(source.dtype),
    )
    return _emit(low, call, "sumpool", window.attrs(source.zero_point), out, rescale)


def lower_float(low: Lowering) -> str:
    """maxpool; or sumpool and a multiplication with one over the element count."""
    call = _pool(low.view)
    window = Window.of(call)
    if not _is_average(call):
        attrs = window.attrs(float("-inf"))
        return _emit(low, call, "maxpool", attrs, DType.BF16, float_rescale(bounds=low.bounds()))
    total = _emit(low, call, "sumpool", window.attrs(0.0), DType.BF16, float_rescale())
    counts = window.counts(_includes_pads(call))
    if np.all(counts == counts[0]):
        return affine.lower_float(low, total, Affine().scaled(1.0 / float(counts[0])).clipped(*low.bounds()))
    shape = static_shape(call)
    reciprocal = low.constant((1.0 / counts).astype(np.float32).reshape((1,) * 2 + shape[2:]))
    return low.emit("mul", [total, reciprocal], shape, DType.BF16, rescale=float_rescale(bounds=low.bounds()))


def _emit(
    low: Lowering, call: Call, op: str, attrs: dict[str, object], out: QuantParams | DType, rescale: Rescale
) -> str:
    """Emit the pool; a 1-D pool gets height 1 on the way in and loses it on the way out."""
    data, shape = low.tensor(call.args[0]), static_shape(call)
    if len(shape) == 4:
        return low.emit(op, [data], shape, out, attrs=attrs, rescale=rescale)
    batch, channels, width = low.builder.info(data).shape
    flat = low.emit(
        op,
        [low.reshaped(data, (batch, channels, 1, width))],
        (batch, channels, 1, shape[2]),
        out,
        attrs=attrs,
        rescale=rescale,
    )
    return low.reshaped(flat, shape)


PATTERNS = (
    Pattern("torq.pool", "quantized", _quantized_graph, check_quantized, lower_quantized),
    Pattern("torq.bf16.pool", "bf16", _float_graph, check_float, lower_float),
)
