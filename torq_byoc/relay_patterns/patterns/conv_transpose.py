"""Transposed convolutions, as one convolution for all output phases and an interleave.

With stride s, output row t = q * s + r (t counted before the crop by the pads) only meets the kernel rows
r, r + s, r + 2s, ...: phase r is an ordinary convolution with a kernel of ceil(k / s) rows.  All s * s phases are
output channels of one convolution; reshape, transpose, reshape put their pixels in place and a slice crops.
No zeros are inserted, so the products are those of the original operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm.ir import Call
from tvm.relax.dpl import DFPattern, is_const, wildcard

from torq_byoc.kernels.graph import Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.arithmetic import float_rescale, requantization, wide_sum
from torq_byoc.relay_patterns.legality import activation_reasons, float_reasons, int_attr, output_reasons
from torq_byoc.relay_patterns.lowering import Lowering, ints, quant_of
from torq_byoc.relay_patterns.matchers import activated, biased, dequantized, one_of, quantized
from torq_byoc.relay_patterns.parameters import bias_of, integer_weights, weight_reasons
from torq_byoc.relay_patterns.quant_params import QuantParams
from torq_byoc.relay_patterns.registry import Pattern
from torq_byoc.relay_patterns.view import View, static_shape

_NAMES = ("relax.nn.conv2d_transpose", "relax.nn.conv1d_transpose")


@dataclass(frozen=True)
class Phases:
    """The geometry on both axes (a 1-D operator has height 1): stride, kernel rows, pads, input and output size."""

    strides: tuple[int, int]
    kernel: tuple[int, int]
    pads: tuple[int, int]
    source: tuple[int, int]
    plane: tuple[int, int]
    groups: int

    @classmethod
    def of(cls, call: Call) -> Phases:
        """The geometry of a transposed convolution."""
        strides, pads = ints(call.attrs.strides), ints(call.attrs.padding)
        kernel = static_shape(call.args[1])[2:]
        source, plane = static_shape(call.args[0])[2:], static_shape(call)[2:]
        begins = pads[: len(strides)]
        if len(strides) == 1:
            strides, kernel, begins = (1, *strides), (1, *kernel), (0, *begins)
            source, plane = (1, *source), (1, *plane)
        return cls(strides, kernel, begins, source, plane, int_attr(call.attrs.groups))  # type: ignore[arg-type]

    @property
    def taps(self) -> tuple[int, int]:
        """Kernel rows and columns of a phase."""
        return math.ceil(self.kernel[0] / self.strides[0]), math.ceil(self.kernel[1] / self.strides[1])

    @property
    def positions(self) -> tuple[int, int]:
        """Values of q that reach the output."""
        rows, columns = (math.ceil((self.pads[i] + self.plane[i]) / self.strides[i]) for i in range(2))
        return rows, columns

    @property
    def count(self) -> int:
        """Number of phases."""
        return self.strides[0] * self.strides[1]

    def rearranged(self, weights: np.ndarray) -> np.ndarray:
        """Weights [C, O/g, KH, KW] -> [O * phases, C/g, taps...], mirrored as a convolution wants them."""
        inputs, per_group = weights.shape[:2]
        (sy, sx), (ty, tx) = self.strides, self.taps
        full = np.zeros((inputs, per_group, ty * sy, tx * sx), weights.dtype)
        full[:, :, : self.kernel[0], : self.kernel[1]] = weights.reshape(inputs, per_group, *self.kernel)
        split = full.reshape(self.groups, inputs // self.groups, per_group, ty, sy, tx, sx)[:, :, :, ::-1, :, ::-1]
        ordered = split.transpose(0, 2, 4, 6, 1, 3, 5)
        return np.ascontiguousarray(ordered).reshape(-1, inputs // self.groups, ty, tx)

    def attrs(self, pad_value: int) -> dict[str, object]:
        """Attributes of the convolution; it may compute a few positions more than are needed."""
        ends = [max(0, self.positions[i] - self.source[i]) for i in range(2)]
        return {
            "strides": (1, 1),
            "pads": (self.taps[0] - 1, self.taps[1] - 1, ends[0], ends[1]),
            "dilations": (1, 1),
            "groups": self.groups,
            "pad_value": pad_value,
        }

    def computed(self) -> tuple[int, int]:
        """Plane of the convolution's output."""
        rows, columns = (max(self.positions[i], self.source[i]) for i in range(2))
        return rows, columns


def _transposed(view: View) -> Call:
    return view.require(*_NAMES)


def _geometry_reasons(view: View) -> list[str]:
    attrs = _transposed(view).attrs
    reasons = []
    if (str(attrs.data_layout), str(attrs.kernel_layout)) not in (("NCHW", "IOHW"), ("NCW", "IOW")):
        reasons.append(f"its layouts are {attrs.data_layout} and {attrs.kernel_layout}, not NCHW and IOHW")
    if any(dilation != 1 for dilation in ints(attrs.dilation)):
        reasons.append(f"its dilations are {list(ints(attrs.dilation))}, not 1")
    return reasons


def check_quantized(view: View) -> list[str]:
    """Dilation 1; data quantized per tensor; constant weights, scales along their second axis; one bias a channel."""
    call = _transposed(view)
    reasons = (
        _geometry_reasons(view)
        + activation_reasons(view.operand(call.args[0]), "its data")
        + weight_reasons(view.operand(call.args[1]), channel_axis=1)
        + output_reasons(view.output())
    )
    return reasons or bias_of(view, call, channel_axis=1).reasons


def check_float(view: View) -> list[str]:
    """Dilation 1; all float32; one bias a channel."""
    return _geometry_reasons(view) + float_reasons(view) + bias_of(view, _transposed(view), channel_axis=1).reasons


def lower_quantized(low: Lowering) -> str:
    """conv2d over all phases, then the interleave."""
    call = _transposed(low.view)
    phases, out = Phases.of(call), low.out
    assert out is not None
    data = quant_of(low.view.operand(call.args[0]))
    stored, scales = integer_weights(low.view.operand(call.args[1]), channel_axis=1)
    weights = phases.rearranged(stored)
    unit = np.repeat(np.tile(data.scale * scales, phases.groups), phases.count)
    real_bias = np.repeat(bias_of(low.view, call, channel_axis=1).real, phases.count)
    sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    rescale = requantization(
        unit / out.scale,
        np.rint(real_bias / unit).astype(np.int64) - data.zero_point * sums,
        out,
        bounds=low.bounds(),
        axis=1,
        wide=wide_sum(data.dtype, DType.of(weights.dtype)),
    )
    return _emit(low, call, phases, weights, data.zero_point, out, rescale)


def lower_float(low: Lowering) -> str:
    """The same in bf16."""
    call = _transposed(low.view)
    phases = Phases.of(call)
    weights = phases.rearranged(low.view.operand(call.args[1]).real().astype(np.float32))
    bias = np.repeat(bias_of(low.view, call, channel_axis=1).real, phases.count)
    return _emit(low, call, phases, weights, 0, DType.BF16, float_rescale(bias, low.bounds(), axis=1))


def _emit(
    low: Lowering,
    call: Call,
    phases: Phases,
    weights: np.ndarray,
    pad_value: int,
    out: QuantParams | DType,
    rescale: Rescale,
) -> str:
    shape = static_shape(call)
    batch, channels = shape[:2]
    data = low.tensor(call.args[0])
    data = low.reshaped(data, (batch, low.builder.info(data).shape[1], *phases.source))
    rows, columns = phases.computed()
    inputs = [data, low.constant(weights)]
    planes = (batch, channels * phases.count, rows, columns)
    result = low.emit("conv2d", inputs, planes, out, attrs=phases.attrs(pad_value), rescale=rescale)
    (sy, sx), (top, left) = phases.strides, phases.pads
    if phases.count > 1:
        split = low.reshaped(result, (batch, channels, sy, sx, rows, columns))
        woven = (batch, channels, rows, sy, columns, sx)
        result = low.emit("transpose", [split], woven, attrs={"perm": (0, 1, 4, 2, 5, 3)})
        result = low.reshaped(result, (batch, channels, rows * sy, columns * sx))
    if (rows * sy, columns * sx) != phases.plane:
        attrs = {"begin": (0, 0, top, left), "step": (1, 1, 1, 1)}
        result = low.emit("slice", [result], (batch, channels, *phases.plane), attrs=attrs)
    return low.reshaped(result, shape)


def _quantized_graph() -> DFPattern:
    return quantized(activated(biased(one_of(_NAMES, dequantized(), dequantized()))))


def _float_graph() -> DFPattern:
    return activated(biased(one_of(_NAMES, wildcard(), is_const())))


PATTERNS = (
    Pattern("torq.conv2d_transpose", "quantized", _quantized_graph, check_quantized, lower_quantized),
    Pattern("torq.bf16.conv2d_transpose", "bf16", _float_graph, check_float, lower_float),
)
