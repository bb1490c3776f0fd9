"""The NPU operator graph: what a partition means, in the machine's own arithmetic, on whole tensors.

A partition of the Relax module is lowered to this form once (``relay_patterns``).  Everything after works
from it: the whole-tensor reference (``kernels.reference``), the decisions (``schedules``) and code
generation (``codegen``).  Scales are gone: what remains are integer biases, multipliers and shifts that
the ACT unit applies, so the reference and a compiled program can agree to the last bit.

Tensors are dense, row-major and in ONNX axis order (NCHW).  Operators and their attributes:

===============  ======================================================================================
``conv2d``       x[N,C,H,W], const weight[O,C/g,KH,KW]; strides, dilations (y,x); pads (top,left,bottom,
                 right); groups; pad_value (the input's zero point); rescale per output channel (axis 1).
                 Depthwise is groups == C.  1-D convolutions arrive with H = 1.  Attr lanes: "filters" runs the
                 lanes along output channels (one group, no border); without it they run along pixels.  Attr
                 interleaved: output channel c belongs to group c % g instead of c // (O/g).
``matmul``       a[...,M,K], b[...,K,N] (const or tensor; leading dims broadcast); both zero points are
                 already removed or folded; rescale per N (last axis) or single.
``sum2``         a, b of one type broadcast to the output; weights (wa, wb): y = rescale(a*wa + b*wb).  Integer
                 inputs take int16 weights (int32 ones int8); bf16 takes floats.  One input may be constant.
``mul``          a, b broadcast; y = rescale((a - zero_point)*b).  One may be constant.  Attr zero_point is
                 a's (default 0); b's is already removed.
``maximum``      a, b broadcast, same quantization; y = rescale(max(a, b)).  ``minimum`` alike.
``weighted_max``  x of one byte, const weights int8[2,n]; attr axis: the output axis along which their columns run (or
                 n is 1); y = rescale(max(x*weights[0], x*weights[1])).
``weighted_sum``  a, b of one byte, const weights int8[2k,n]; attr axis; y = rescale(a*wa + b*wb), wa the sum of the
                 first k rows, wb of the others.
``compare``      a, b broadcast, same quantization; attr relation "gt"|"ge"|"eq"; result 0/1.
``act``          x; attr mode: "ACT" (default: requantize, clip, relu, cast within integers or floats; integer
                 casts saturate), "ABS", "NEG", "FLR", "CEL", "I2F", "F2I", "CLZ"; rescale.  "LSL", "LSR", "ASR"
                 take a second input int32[..., 2] of pairs (0, shift amount) whose leading axes broadcast to
                 x; of their rescale only rounding, zero point and clip count.
``scale_rows``   x, entries; y = (x + bias) * scale, then shift, rounding, zero point and clip of the rescale,
                 whose own bias and scale are 0 and 1.  entries is int32[..., 2] of (bias, scale), or for float
                 x fp32[..., 1] of biases; its leading axes broadcast to x.
``table``        x; attr table: int16[512,2] (base, slope); rescale gives the index (before look-up);
                 attrs out_zero_point, clip_min, clip_max act after it.
``maxpool``      x[N,C,H,W]; kernel, strides, pads, dilations, pad_value; rescale.
``window_max``   x; attrs axis, kernel, dilation, before (border in front), pad_value; stride 1; one rescale.
``sumpool``      the same with a sum (average pools); rescale, per output pixel when rescale.axis == 2
                 (arrays of OH*OW, row-major over the last two axes).
``reduce``       x; attrs kind "sum"|"max"|"min", axes (sorted, non-negative), keepdims; rescale.  Kinds
                 "argmax"|"argmin" give the row-major index of the first extremum and have no rescale.
``pad``          x; attrs before, after (a number a dim), value.
``concat``       n inputs, same quantization; axis.
``slice``        x; begin, step (a number a dim; step >= 1); extent from the output shape.
``reshape``      x; row-major, no data moves.
``bitcast``      x as another type of the same element size, no data moves.
``transpose``    x; perm.
``reordered``    the same of a graph input, in the loads of its readers: no data moves in LRAM.
``broadcast``    x to the output's shape (numpy rules).
``resize_nearest``  x[N,C,H,W]; attr factors (fy, fx), integers.
===============  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding

ALIAS_OPS = frozenset({"reshape", "bitcast", "reordered"})
"""Operators whose result is the bytes of their input under another shape or type, or in another order of axes."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the graph.

    ``scale`` and ``zero_point`` are for reports and graph inputs/outputs only; an integer tensor without a scale stands
    for none of the model's: it is a step on the way, or holds the elements of one in another order.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scale: float | None = None
    zero_point: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.size


@dataclass(frozen=True, eq=False)
class Rescale:
    """What ACT does to an accumulator: y = clip(((p + bias) * scale, rounded, >> shift) + zero_point).

    Attributes:
        bias: int32[n] (fp32[n] for bf16), n the channel count or 1.
        scale: int32[n], or None for bf16 (ACT has no float scale) and for a plain 1.
        shift: 0..63, one for all channels.
        clip_min, clip_max: bounds in the output type; the type's own range when infinite.
        axis: output axis that the n entries run along; -1 (last) for matmul, 1 for NCHW, None when n == 1.
        sum_bits: 32, or 48 when an operand is int16.
    """

    bias: np.ndarray
    scale: np.ndarray | None = None
    shift: int = 0
    zero_point: int = 0
    clip_min: float = float("-inf")
    clip_max: float = float("inf")
    axis: int | None = None
    rounding: Rounding = Rounding.NTP
    sum_bits: int = 32


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: names of its input and output tensors, and its attributes (see the module docstring)."""

    name: str
    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    rescale: Rescale | None = None
    origin: str = ""
    """The ONNX node (or nodes) this came from, for errors and layer tables."""


@dataclass(frozen=True, eq=False)
class OpGraph:
    """Nodes in topological order; ``constants`` are tensors whose value is known."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, TensorInfo]
    constants: Mapping[str, np.ndarray]
    nodes: tuple[Node, ...]

    def consumers(self) -> dict[str, list[Node]]:
        """For every tensor, the nodes that read it."""
        users: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                users[name].append(node)
        return users

    def storage_roots(self) -> dict[str, str]:
        """For every tensor the tensor whose bytes it is: itself unless an alias operator made it."""
        roots = {name: name for name in self.tensors}
        for node in self.nodes:
            if node.op in ALIAS_OPS:
                roots[node.output] = roots[node.inputs[0]]
        return roots

    def reordered(self) -> dict[str, tuple[int, ...]]:
        """Of ``reordered`` graph inputs, the axes of the input (in XRAM) that their axes are."""
        return {node.output: tuple(node.attrs["perm"]) for node in self.nodes if node.op == "reordered"}

    def element_roots(self) -> dict[str, str]:
        """For every tensor the tensor whose elements it is, index by index: itself unless a bitcast made it."""
        roots = {name: name for name in self.tensors}
        for node in self.nodes:
            if node.op == "bitcast":
                roots[node.output] = roots[node.inputs[0]]
        return roots
