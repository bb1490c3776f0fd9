"""Convolutions against onnxruntime: awkward scales, edge zero points, outlier channels, every type and geometry."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, ops, partitioned


def outlier_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """int8 weights and per-channel scales that span four decades; one channel is all zero."""
    weights = rng.integers(-127, 128, shape)
    scales = 10.0 ** rng.uniform(-5, -2, shape[0])
    if shape[0] > 2:
        weights[1] = 0
    return weights.astype(np.int8), scales


def conv_model(
    *,
    shape: tuple[int, ...] = (1, 6, 9, 7),
    out_channels: int = 5,
    kernel: tuple[int, ...] = (3, 3),
    group: int = 1,
    dtype: str = "int8",
    zero_points: tuple[int, int] = (-128, 127),
    activation: str = "",
    bias: str = "int32",
    weight_type: str = "int8",
    per_channel: bool = True,
    seed: int = 0,
    **attrs: object,
):
    rng = np.random.default_rng(seed)
    m = Model()
    data_scale = 0.0137 if dtype != "int16" else 0.00037
    weights, scales = outlier_weights(rng, (out_channels, shape[1] // group, *kernel))
    if not per_channel:
        scales = np.asarray(scales.max())
    elif weight_type == "uint8":
        raise ValueError("uint8 weights are tested per tensor")
    if weight_type == "uint8":
        weights = (weights.astype(np.int16) + 128).astype(np.uint8)
    x = m.qinput(shape, data_scale, zero_points[0], dtype)
    w = m.qconst(weights, scales, 128 if weight_type == "uint8" else 0)
    inputs = [x, w]
    unit = np.float32(data_scale) * np.broadcast_to(np.float32(scales), out_channels)
    if bias == "int32":
        codes = rng.integers(-20000, 20000, out_channels).astype(np.int32)
        inputs.append(m.qconst(codes, unit, 0))
    elif bias == "float":
        inputs.append(m.const((rng.integers(-20000, 20000, out_channels) * unit).astype(np.float32)))
    elif bias == "other scale":
        inputs.append(m.qconst(rng.integers(-900, 900, out_channels).astype(np.int32), np.float32(0.0031), 0))
    y = m.op("Conv", *inputs, group=group, **attrs)
    if activation == "Relu":
        y = m.op("Relu", y)
    elif activation == "Clip":
        y = m.op("Clip", y, m.const(np.float32(-0.4)), m.const(np.float32(1.7)))
    out_scale = 0.021 if dtype != "int16" else 0.0006
    m.output(m.quantize(y, out_scale, zero_points[1], dtype), dtype)
    return m.proto()


@pytest.mark.parametrize("zero_points", [(-128, 127), (127, -128), (0, 0), (3, -77)])
def test_zero_points_at_the_edges(zero_points):
    graph = check_quantized(conv_model(zero_points=zero_points, pads=[1, 0, 2, 1]))
    assert ops(graph)[-1] == "conv2d"


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 2], "pads": [0, 0, 1, 1]},
        {"strides": [2, 1], "pads": [1, 1, 1, 1]},
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
        {"strides": [3, 3]},
        {"kernel": (1, 1)},
        {"kernel": (5, 1), "pads": [2, 0, 2, 0]},
        {"group": 3, "out_channels": 6},
        {"group": 6, "out_channels": 6, "pads": [1, 1, 1, 1]},
        {"group": 6, "out_channels": 12, "pads": [1, 1, 1, 1]},
        {"shape": (3, 1, 1, 5), "kernel": (1, 3), "out_channels": 1, "bias": "", "zero_points": (-3, 5), "seed": 4},
    ],
)
def test_geometries(attrs):
    check_quantized(conv_model(**attrs))


@pytest.mark.parametrize("dtype, zero_points", [("uint8", (0, 255)), ("uint8", (137, 12)), ("int16", (0, 0))])
def test_activation_types(dtype, zero_points):
    check_quantized(conv_model(dtype=dtype, zero_points=zero_points, pads=[1, 1, 1, 1], bias="float"))


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("zero_points", [(0, -128), (-5, 40)])
def test_activation_folds_into_the_clip(activation, zero_points):
    graph = check_quantized(conv_model(activation=activation, zero_points=zero_points))
    assert ops(graph) == ["conv2d"]


@pytest.mark.parametrize("bias", ["", "float", "other scale"])
def test_bias_forms(bias):
    check_quantized(conv_model(bias=bias))


def test_unsigned_weights_are_centred():
    graph = check_quantized(conv_model(weight_type="uint8", per_channel=False, dtype="uint8", zero_points=(3, 200)))
    assert graph.constants[graph.nodes[0].inputs[1]].dtype == np.int8


def test_conv1d_becomes_a_row():
    graph = check_quantized(conv_model(shape=(2, 4, 19), kernel=(5,), pads=[2, 1], strides=[2], zero_points=(9, -9)))
    assert ops(graph) == ["reshape", "conv2d", "reshape"]


def test_large_stride():
    check_quantized(conv_model(shape=(1, 3, 16, 16), kernel=(4, 4), strides=[4, 4], out_channels=8))


def test_graph_inputs_and_outputs_carry_their_quantization():
    model = conv_model()
    graph = check_quantized(model)
    assert graph.tensors[graph.inputs[0]].scale == pytest.approx(0.0137)
    assert graph.tensors[graph.inputs[0]].zero_point == -128
    assert graph.tensors[graph.outputs[0]].scale == pytest.approx(0.021)
    assert graph.tensors[graph.outputs[0]].zero_point == 127
    assert graph.nodes[0].origin.startswith("conv_")


def test_weights_from_run_time_stay_on_the_cpu_with_the_reason():
    m = Model()
    x, w = m.qinput((1, 2, 5, 5), 0.1), m.qinput((3, 2, 3, 3), 0.1)
    m.output(m.quantize(m.op("Conv", x, w), 0.5), "int8")
    parts = partitioned(m.proto(), "quantized")
    assert parts.partitions == ()
    reasons = {op.op: op.reason for op in parts.cpu_ops}
    assert "its weights are not constant" in reasons["quantize"] or "not constant" in reasons["nn.conv2d"]


def float_conv(shape=(1, 6, 9, 7), weights=(5, 6, 3, 3), bias=True, activation="", **attrs):
    rng = np.random.default_rng(1)
    m = Model()
    inputs = [m.input(shape), m.const(rng.standard_normal(weights).astype(np.float32))]
    if bias:
        inputs.append(m.const(rng.standard_normal(weights[0]).astype(np.float32) * 3))
    y = m.op("Conv", *inputs, **attrs)
    if activation == "Relu":
        y = m.op("Relu", y)
    elif activation == "Clip":
        y = m.op("Clip", y, m.const(np.float32(0.0)), m.const(np.float32(6.0)))
    m.output(y)
    return m.proto()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        {"activation": "Clip", "strides": [2, 2]},
        {"weights": (6, 1, 3, 3), "group": 6},
        {"shape": (1, 4, 21), "weights": (3, 4, 5), "strides": [2]},
    ],
)
def test_bf16(options):
    graph = check_float(float_conv(**options))
    assert [op for op in ops(graph) if op != "reshape"] == ["conv2d"]


TRANSPOSED = [
    {"strides": [2, 2]},
    {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"strides": [3, 2], "pads": [2, 0, 1, 1]},
    {"strides": [1, 1], "pads": [1, 1, 1, 1]},
    {"strides": [2, 2], "kernel": (2, 2)},
    {"strides": [2, 2], "group": 2},
    {"strides": [4, 1], "kernel": (3, 4)},
    {"shape": (2, 4, 9), "kernel": (4,), "strides": [2], "pads": [1, 1]},
]


def transposed(precision, *, shape=(1, 4, 5, 6), kernel=(3, 3), out_channels=6, group=1, **attrs):
    rng = np.random.default_rng(9)
    m = Model()
    weights = rng.integers(-127, 128, (shape[1], out_channels // group, *kernel)).astype(np.int8)
    bias = rng.standard_normal(out_channels).astype(np.float32)
    if precision == "bf16":
        x, w = m.input(shape), m.const((weights / 64).astype(np.float32))
    else:
        scales = 10.0 ** rng.uniform(-4, -2, out_channels // group)
        x, w = m.qinput(shape, 0.02, -128), m.qconst(weights, scales, axis=1)
    y = m.op("ConvTranspose", x, w, m.const(bias), group=group, **attrs)
    if precision == "bf16":
        m.output(y)
    else:
        m.output(m.quantize(m.op("Relu", y), 0.02, 100), "int8")
    return m.proto()


@pytest.mark.parametrize("attrs", TRANSPOSED)
def test_transposed(attrs):
    check_quantized(transposed("quantized", **attrs))


@pytest.mark.parametrize("attrs", TRANSPOSED)
def test_transposed_bf16(attrs):
    check_float(transposed("bf16", **attrs))


def test_a_channel_of_zeros_with_the_smallest_scale_keeps_its_bias():
    rng = np.random.default_rng(10)
    m = Model()
    weights = rng.integers(-127, 128, (3, 2, 3, 3)).astype(np.int8)
    weights[1] = 0
    w = m.qconst(weights, np.array([0.01, 1e-30, 0.002]))
    y = m.op("Conv", m.qinput((1, 2, 6, 6), 0.02, 4), w, m.const(np.array([0.1, 1.25, -0.3], np.float32)))
    m.output(m.quantize(y, 0.03, 5), "int8")
    graph = check_quantized(m.proto())
    assert ops(graph) == ["conv2d"]
