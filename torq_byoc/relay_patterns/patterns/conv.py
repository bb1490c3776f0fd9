"""Convolutions: [conv, bias, relu or clip], 1-D and 2-D, grouped and depthwise."""

from __future__ import annotations

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
from torq_byoc.relay_patterns.view import View, op_name, static_shape

CONVOLUTIONS = ("relax.nn.conv2d", "relax.nn.conv1d")


@dataclass(frozen=True)
class Geometry:
    """Strides, pads (top, left, bottom, right), dilations and groups of a convolution, as 2-D."""

    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    groups: int

    @classmethod
    def of(cls, call: Call) -> Geometry:
        """The geometry of a conv2d, or of a conv1d seen as a conv2d of height 1."""
        attrs = call.attrs
        strides, pads, dilations = ints(attrs.strides), ints(attrs.padding), ints(attrs.dilation)
        if op_name(call).endswith("conv1d"):
            strides, dilations, pads = (1, *strides), (1, *dilations), (0, pads[0], 0, pads[1])
        return cls(strides, pads, dilations, int_attr(attrs.groups))  # type: ignore[arg-type]

    def attrs(self, pad_value: int = 0) -> dict[str, object]:
        """The attributes of the NPU operator."""
        return {
            "strides": self.strides,
            "pads": self.pads,
            "dilations": self.dilations,
            "groups": self.groups,
            "pad_value": pad_value,
        }


def _quantized_graph() -> DFPattern:
    return quantized(activated(biased(one_of(CONVOLUTIONS, dequantized(), dequantized()))))


def _float_graph() -> DFPattern:
    return activated(biased(one_of(CONVOLUTIONS, wildcard(), is_const())))


def layout_reasons(view: View) -> list[str]:
    """Why the layouts of a convolution are not those of ONNX."""
    attrs = view.require("nn.conv2d", "nn.conv1d").attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if layouts in (("NCHW", "OIHW", "NCHW"), ("NCW", "OIW", "NCW")):
        return []
    return [f"its layouts are {', '.join(layouts)}, not NCHW and OIHW"]


def check_quantized(view: View) -> list[str]:
    """Data quantized per tensor; weights constant, at most 16 bits without their zero point; one bias a channel."""
    conv = view.require("nn.conv2d", "nn.conv1d")
    weight = view.operand(conv.args[1])
    return (
        layout_reasons(view)
        + activation_reasons(view.operand(conv.args[0]), "its data")
        + weight_reasons(weight, channel_axis=0)
        + output_reasons(view.output())
        + bias_of(view, conv, channel_axis=1).reasons
    )


def check_float(view: View) -> list[str]:
    """All float32; bias one value a channel."""
    conv = view.require("nn.conv2d", "nn.conv1d")
    return layout_reasons(view) + float_reasons(view) + bias_of(view, conv, channel_axis=1).reasons


def lower_quantized(low: Lowering) -> str:
    """conv2d with the input's zero point folded into the bias and one multiplier a channel."""
    conv = low.view.require("nn.conv2d", "nn.conv1d")
    data = quant_of(low.view.operand(conv.args[0]))
    weights, scales = integer_weights(low.view.operand(conv.args[1]), channel_axis=0)
    unit = data.scale * scales
    sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    bias = np.rint(bias_of(low.view, conv, channel_axis=1).real / unit).astype(np.int64) - data.zero_point * sums
    out = low.out
    assert out is not None
    rescale = requantization(
        unit / out.scale,
        bias,
        out,
        bounds=low.bounds(),
        axis=1,
        wide=wide_sum(data.dtype, DType.of(weights.dtype)),
    )
    return emit_conv(
        low, conv, low.tensor(conv.args[0]), weights, Geometry.of(conv).attrs(data.zero_point), out, rescale
    )


def lower_float(low: Lowering) -> str:
    """conv2d in bf16 with an fp32 bias."""
    conv = low.view.require("nn.conv2d", "nn.conv1d")
    weights = low.view.operand(conv.args[1]).real().astype(np.float32)
    rescale = float_rescale(bias_of(low.view, conv, channel_axis=1).real, low.bounds(), axis=1)
    return emit_conv(low, conv, low.tensor(conv.args[0]), weights, Geometry.of(conv).attrs(), DType.BF16, rescale)


def emit_conv(
    low: Lowering,
    conv: Call,
    data: str,
    weights: np.ndarray,
    attrs: dict[str, object],
    out: QuantParams | DType,
    rescale: Rescale,
) -> str:
    """Emit the conv2d; a 1-D convolution gets height 1 on the way in and loses it on the way out."""
    shape = static_shape(conv)
    if len(shape) == 4:
        return low.emit("conv2d", [data, low.constant(weights)], shape, out, attrs=attrs, rescale=rescale)
    batch, channels, width = low.builder.info(data).shape
    data = low.reshaped(data, (batch, channels, 1, width))
    weights = weights.reshape(*weights.shape[:2], 1, weights.shape[2])
    flat = low.emit(
        "conv2d", [data, low.constant(weights)], (shape[0], shape[1], 1, shape[2]), out, attrs=attrs, rescale=rescale
    )
    return low.reshaped(flat, shape)


PATTERNS = (
    Pattern("torq.conv2d", "quantized", _quantized_graph, check_quantized, lower_quantized),
    Pattern("torq.bf16.conv2d", "bf16", _float_graph, check_float, lower_float),
)
