"""One small graph of a single node for every operator and its awkward variants, with a tiling that cuts unevenly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import torq_byoc.kernels  # noqa: F401  (registers all kernels)
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding

I8, U8, I16, I32 = DType.INT8, DType.UINT8, DType.INT16, DType.INT32
BF16, FP32 = DType.BF16, DType.FP32


@dataclass(frozen=True)
class Case:
    """A node to build: inputs as (shape, type), constants among them by position, and a tile."""

    op: str
    inputs: tuple[tuple[tuple[int, ...], DType], ...]
    shape: tuple[int, ...]
    tile: tuple[int, ...]
    out: DType = I8
    attrs: Any = None
    rescale: Rescale | None = None
    constants: tuple[int, ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        return f"{self.op}-{self.label or 'x'.join(map(str, self.shape))}"

    def graph(self) -> OpGraph:
        rng = np.random.default_rng(7)
        builder = GraphBuilder(self.name)
        names = []
        for position, (shape, dtype) in enumerate(self.inputs):
            if position in self.constants:
                names.append(builder.constant(sample(rng, shape, dtype), f"c{position}"))
            else:
                names.append(builder.input(f"x{position}", shape, dtype))
        output = builder.emit(self.op, names, self.shape, self.out, attrs=self.attrs, rescale=self.rescale)
        builder.output(output)
        return builder.finish()


def sample(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> np.ndarray:
    """Values over the whole range with the extremes always present; floats with outliers and zeros."""
    if dtype.is_float:
        values = rng.standard_t(2.0, size=shape) * 3
        values.reshape(-1)[:1] = 0.0
        return values.astype(dtype.numpy)
    low, high = dtype.integer_range
    values = rng.integers(low, high, size=shape, endpoint=True)
    flat = values.reshape(-1)
    flat[:1], flat[-1:] = low, high
    return values.astype(dtype.numpy)


def per_channel(channels: int, shift: int = 18, axis: int = 1, **more: Any) -> Rescale:
    rng = np.random.default_rng(channels)
    bias = rng.integers(-3000, 3000, channels).astype(np.int32)
    scale = rng.integers(1, 1 << 12, channels).astype(np.int32)
    return Rescale(bias, scale, shift, axis=axis if channels > 1 else None, **more)


def single(scale: int | None = 5, shift: int = 3, bias: int = -7, **more: Any) -> Rescale:
    value = None if scale is None else np.array([scale], np.int32)
    return Rescale(np.array([bias], np.int32), value, shift, **more)


def conv(
    source: tuple[int, ...],
    weights: tuple[int, ...],
    tile: tuple[int, ...],
    *,
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: tuple[int, int] = (1, 1),
    groups: int = 1,
    dtype: DType = I8,
    label: str = "",
    **more: Any,
) -> Case:
    spatial = [
        (source[2 + a] + pads[a] + pads[2 + a] - (weights[2 + a] - 1) * dilations[a] - 1) // strides[a] + 1
        for a in (0, 1)
    ]
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups, "pad_value": 0, **more}
    if dtype is BF16:
        rescale = Rescale(np.linspace(-2, 2, weights[0]).astype(np.float32), None, axis=1, clip_min=-4.0)
    else:
        attrs["pad_value"] = -11
        rescale = per_channel(weights[0], zero_point=-128, clip_min=-100, sum_bits=48 if dtype is I16 else 32)
    weight_type = I8 if dtype is I16 else dtype
    shape = (source[0], weights[0], *spatial)
    inputs = ((source, dtype), (weights, weight_type))
    return Case("conv2d", inputs, shape, tile, dtype, attrs, rescale, (1,), label)


def pool(
    op: str, tile: tuple[int, ...], label: str, dtype: DType = I8, rescale: Rescale | None = None, **attrs: Any
) -> Case:
    source = attrs.pop("source", (1, 3, 9, 11))
    kernel, strides, pads = attrs["kernel"], attrs["strides"], attrs["pads"]
    spatial = [(source[2 + a] + pads[a] + pads[2 + a] - kernel[a]) // strides[a] + 1 for a in (0, 1)]
    attrs = {"dilations": (1, 1), "pad_value": -128 if op == "maxpool" else 0, **attrs}
    return Case(op, ((source, dtype),), (*source[:2], *spatial), tile, dtype, attrs, rescale, label=label)


TABLE = np.stack([np.arange(-256, 256) * 100, np.full(512, 97)], axis=1).astype(np.int16)

CASES = (
    conv((1, 5, 9, 9), (10, 5, 3, 3), (1, 4, 4, 9), pads=(1, 1, 1, 1), label="same"),
    conv((2, 5, 9, 7), (6, 5, 3, 3), (1, 4, 2, 7), pads=(2, 1, 0, 1), label="uneven_pads"),
    conv((1, 3, 15, 15), (9, 3, 3, 3), (1, 4, 3, 8), strides=(2, 2), pads=(1, 1, 1, 1), label="stride2"),
    conv((1, 3, 16, 16), (8, 3, 1, 1), (1, 4, 3, 8), strides=(2, 2), label="pointwise_stride2"),
    conv((1, 3, 16, 16), (8, 3, 4, 4), (1, 4, 3, 4), strides=(4, 4), label="patchify"),
    conv((1, 3, 16, 40), (70, 3, 4, 9), (1, 64, 2, 4), strides=(4, 8), lanes="filters", label="filter_lanes"),
    conv((1, 8, 10, 9), (8, 1, 3, 3), (1, 4, 3, 9), pads=(1, 1, 1, 1), groups=8, label="depthwise"),
    conv((1, 8, 9, 9), (12, 4, 3, 3), (1, 4, 4, 9), pads=(1, 1, 1, 1), groups=2, label="groups"),
    conv((1, 8, 9, 9), (16, 4, 3, 3), (1, 4, 4, 9), pads=(1, 1, 1, 1), groups=2, label="tiles within groups"),
    conv((1, 8, 9, 9), (12, 4, 3, 3), (1, 8, 4, 9), groups=2, interleaved=True, label="interleaved"),
    conv(
        (1, 8, 10, 12),
        (8, 1, 3, 3),
        (1, 4, 3, 4),
        strides=(2, 2),
        pads=(0, 0, 1, 1),
        groups=8,
        label="depthwise_stride2",
    ),
    conv((1, 4, 1, 40), (8, 4, 1, 5), (1, 4, 1, 36), label="one_dimensional"),
    conv((1, 4, 13, 13), (4, 4, 3, 3), (1, 4, 4, 13), pads=(2, 2, 2, 2), dilations=(2, 2), label="dilated"),
    conv((1, 4, 8, 8), (4, 4, 3, 3), (1, 4, 3, 8), pads=(1, 1, 1, 1), dtype=I16, label="int16"),
    conv((1, 4, 8, 8), (8, 4, 3, 3), (1, 4, 3, 8), pads=(1, 1, 1, 1), dtype=BF16, label="bf16"),
    Case("matmul", (((7, 33), I8), ((33, 20), I8)), (7, 20), (4, 20), rescale=per_channel(20, axis=-1), constants=(1,)),
    Case("matmul", (((2, 3, 6, 9), I8), ((3, 9, 10), I8)), (2, 3, 6, 10), (1, 2, 4, 10), rescale=single(3, 9)),
    Case(
        "matmul",
        (((5, 8), I16), ((8, 6), I16)),
        (5, 6),
        (4, 6),
        I16,
        rescale=single(1 << 30, 47, sum_bits=48),
        label="int16",
    ),
    Case("matmul", (((5, 8), BF16), ((8, 6), BF16)), (5, 6), (4, 6), BF16, label="bf16"),
    Case(
        "sum2", (((2, 5, 7), I8), ((5, 1), I8)), (2, 5, 7), (1, 2, 7), attrs={"weights": (300, -4000)}, rescale=single()
    ),
    Case(
        "sum2",
        (((3, 10), BF16), ((3, 10), BF16)),
        (3, 10),
        (2, 10),
        BF16,
        attrs={"weights": (1.0, -1.0)},
        label="bf16",
    ),
    Case("mul", (((4, 9), I8), ((9,), I8)), (4, 9), (3, 5), rescale=single(-9, 6, rounding=Rounding.NTE)),
    Case("mul", (((4, 9), I8), ((4, 1), U8)), (4, 9), (3, 5), attrs={"zero_point": -33}, rescale=single(5, 7)),
    Case(
        "mul",
        (((4, 9), I16), ((4, 1), I16)),
        (4, 9),
        (3, 9),
        I16,
        rescale=single(1 << 20, 36, sum_bits=48),
        label="int16",
    ),
    Case("maximum", (((4, 9), I8), ((1, 9), I8)), (4, 9), (3, 5)),
    Case("minimum", (((4, 9), U8), ((4, 9), U8)), (4, 9), (3, 5), U8, rescale=single(3, 1, zero_point=9)),
    Case(
        "weighted_max",
        (((2, 6, 3, 5), I8), ((2, 6), I8)),
        (2, 6, 3, 5),
        (1, 4, 2, 5),
        attrs={"axis": 1},
        rescale=per_channel(6),
        constants=(1,),
    ),
    Case(
        "weighted_sum",
        (((4, 9), U8), ((4, 9), U8), ((4, 1), I8)),
        (4, 9),
        (3, 5),
        attrs={"axis": 1},
        rescale=single(),
        constants=(2,),
    ),
    Case("compare", (((4, 9), I8), ((4, 1), I8)), (4, 9), (3, 5), U8, attrs={"relation": "ge"}),
    Case("compare", (((4, 9), BF16), ((4, 9), BF16)), (4, 9), (3, 5), U8, attrs={"relation": "gt"}, label="bf16"),
    Case(
        "act",
        (((3, 11), I32),),
        (3, 11),
        (2, 11),
        rescale=single(1 << 30, 60, rounding=Rounding.DBL),
        label="double_rounding",
    ),
    Case("act", (((3, 11), I8),), (3, 11), (2, 4), U8, rescale=per_channel(11, 10, zero_point=128), label="per_column"),
    Case(
        "act",
        (((3, 11), I8),),
        (3, 11),
        (2, 4),
        I16,
        {"mode": "ABS"},
        single(77, 2, rounding=Rounding.OFF),
        label="abs",
    ),
    Case("act", (((3, 11), I8),), (3, 11), (2, 4), I8, {"mode": "NEG"}, label="neg"),
    Case("act", (((3, 11), I32),), (3, 11), (2, 4), I8, {"mode": "CLZ"}, label="clz"),
    Case("act", (((3, 11), I16),), (3, 11), (2, 4), BF16, {"mode": "I2F"}, label="i2f"),
    Case("act", (((3, 11), BF16),), (3, 11), (2, 4), I16, {"mode": "F2I"}, label="f2i"),
    Case("act", (((3, 11), BF16),), (3, 11), (2, 4), BF16, {"mode": "FLR"}, label="floor"),
    Case("act", (((3, 11), BF16),), (3, 11), (2, 4), BF16, {"mode": "CEL"}, label="ceil"),
    Case("act", (((3, 11), I32), ((3, 1, 2), I32)), (3, 11), (2, 4), I32, {"mode": "ASR"}, label="asr"),
    Case("act", (((3, 11), I32), ((11, 2), I32)), (3, 11), (2, 4), I32, {"mode": "LSL"}, label="lsl"),
    Case("act", (((3, 11), I32), ((11, 2), I32)), (3, 11), (2, 4), I32, {"mode": "LSR"}, label="lsr"),
    Case("scale_rows", (((3, 11), I32), ((3, 1, 2), I32)), (3, 11), (2, 4), I8, rescale=single(None, 20, 0)),
    Case(
        "table",
        (((3, 11), I8),),
        (3, 11),
        (2, 5),
        attrs={"table": TABLE, "out_zero_point": 3},
        rescale=single(128, 0, 0),
    ),
    pool("maxpool", (1, 2, 3, 5), "valid", kernel=(3, 3), strides=(2, 2), pads=(0, 0, 0, 0)),
    pool("maxpool", (1, 2, 4, 11), "same", kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1)),
    pool("maxpool", (1, 2, 2, 6), "stride2", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    pool("maxpool", (1, 3, 3, 3), "stride3", kernel=(3, 3), strides=(3, 3), pads=(0, 0, 0, 0)),
    Case(
        "window_max",
        (((2, 9, 5, 7), I8),),
        (2, 9, 5, 7),
        (1, 4, 5, 3),
        attrs={"axis": 1, "kernel": 5, "dilation": 1, "before": 2, "pad_value": -128},
        label="same",
    ),
    Case(
        "window_max",
        (((3, 9, 5), I8),),
        (3, 9, 2),
        (2, 4, 2),
        attrs={"axis": 2, "kernel": 2, "dilation": 3, "before": 0, "pad_value": -128},
        label="dilated",
    ),
    pool("sumpool", (1, 2, 3, 5), "mean", I8, single(1 << 18, 20, 0), kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case(
        "reduce",
        (((2, 5, 7), I8),),
        (2, 5, 1),
        (1, 3, 1),
        attrs={"kind": "sum", "axes": (2,), "keepdims": True},
        rescale=single(),
    ),
    Case("reduce", (((2, 5, 7), I8),), (5,), (3,), attrs={"kind": "max", "axes": (0, 2), "keepdims": False}),
    Case("reduce", (((2, 5, 7), BF16),), (2, 7), (1, 4), BF16, {"kind": "min", "axes": (1,), "keepdims": False}),
    Case(
        "reduce",
        (((2, 5, 7), I8),),
        (2, 5),
        (2, 3),
        I16,
        {"kind": "argmax", "axes": (2,), "keepdims": False},
        label="argmax",
    ),
    Case(
        "reduce",
        (((4, 9), BF16),),
        (4,),
        (3,),
        I32,
        {"kind": "argmin", "axes": (1,), "keepdims": False},
        label="argmin",
    ),
    Case("reduce", (((9,), I8),), (), (), I32, {"kind": "sum", "axes": (0,), "keepdims": False}, label="scalar"),
    Case(
        "pad",
        (((1, 3, 5, 6), I8),),
        (1, 3, 10, 9),
        (1, 2, 2, 9),
        attrs={"before": (0, 0, 3, 1), "after": (0, 0, 2, 2), "value": -5},
    ),
    Case("concat", (((2, 3, 4), I8), ((2, 1, 4), I8), ((2, 5, 4), I8)), (2, 9, 4), (1, 2, 4), attrs={"axis": 1}),
    Case("slice", (((2, 9, 11), I16),), (2, 3, 4), (1, 2, 3), I16, {"begin": (0, 1, 2), "step": (1, 3, 2)}),
    Case("transpose", (((4, 5, 6), BF16),), (6, 4, 5), (4, 3, 5), BF16, {"perm": (2, 0, 1)}),
    Case("broadcast", (((5, 1), I8),), (2, 5, 3), (1, 3, 3)),
    Case("resize_nearest", (((1, 2, 3, 4), I8),), (1, 2, 6, 12), (1, 1, 4, 6), attrs={"factors": (2, 3)}),
)
