"""Integers and bf16 in one module: which borders run on the NPU, and that their codes and floats are right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.relay_patterns.infra import (
    CONFIG,
    Model,
    npu_outputs,
    onnxruntime_outputs,
    ops,
    partitioned,
    random_feeds,
    single_graph,
)
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns import lower_partition
from torq_byoc.relay_patterns.composites.float_bits import split_bf16

CODES = {"int8": (0.0213, -7), "uint8": (0.0213, 119), "int16": (3.7e-4, 0)}


def quantized_conv(m: Model, x: str, channels: int, outputs: int = 3) -> str:
    """A 1x1 convolution with int8 weights."""
    codes = np.random.default_rng(5).integers(-127, 128, (outputs, channels, 1, 1)).astype(np.int8)
    return m.op("Conv", x, m.qconst(codes, 0.004))


def island(dtype: str, out: str, *, weights: np.ndarray) -> Model:
    """codes -> float convolution -> codes."""
    m = Model()
    scale, zero_point = CODES[dtype]
    y = m.op("Conv", m.qinput((1, 4, 5, 3), scale, zero_point, dtype), m.const(weights))
    scale, zero_point = CODES[out]
    m.output(m.quantize(y, scale, zero_point, out), out)
    return m


def modes(graph: OpGraph) -> list[str]:
    return [str(node.attrs["mode"]) for node in graph.nodes if "mode" in node.attrs]


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("out", CODES)
def test_codes_cross_both_borders_on_the_npu(dtype: str, out: str) -> None:
    """A convolution with one weight of 1 a channel passes bf16 values on, so that numpy knows every code."""
    m = island(dtype, out, weights=np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1))
    graph = single_graph(m.proto(), "mixed")
    assert ops(graph) == ["act", "sum2", "conv2d", "sum2", "act"] and modes(graph) == ["I2F", "F2I"]
    feeds = random_feeds(m.proto(), 3)
    (codes,) = feeds.values()
    scale, zero_point = CODES[dtype]
    whole = (codes.astype(np.int64) - zero_point).astype(ml_dtypes.bfloat16).astype(np.float64)
    values = (whole * sum(split_bf16(float(np.float32(scale))))).astype(ml_dtypes.bfloat16).astype(np.float64)
    scale, zero_point = CODES[out]
    high, low = split_bf16(1 / float(np.float32(scale)))
    steps = (values * high + values * low).astype(np.float32)
    limits = np.iinfo(out)
    wanted = np.clip(np.rint(steps).astype(np.int64) + zero_point, limits.min, limits.max)
    assert np.array_equal(npu_outputs(graph, feeds)[0], wanted)
    assert np.unique(wanted).size > 10


def test_eight_bit_codes_become_correctly_rounded_floats() -> None:
    """Whatever the scale, in units of the last place of bf16: half a unit, and what 15 bits of a scale leave."""
    for scale in (1.0, 0.25, 0.0213, 3e-7, 117.3):
        m = Model()
        x = m.qinput((1, 1, 16, 16), scale, -100)
        m.output(m.op("Conv", x, m.const(np.ones((1, 1, 1, 1), np.float32))))
        graph = single_graph(m.proto(), "mixed")
        codes = np.arange(-128, 128).reshape(1, 1, 16, 16).astype(np.int8)
        (found,) = npu_outputs(graph, {graph.inputs[0]: codes})
        exact = (codes.astype(np.float64) + 100) * float(np.float32(scale))
        unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 1e-30))) - 7)
        assert (np.abs(found - exact) / unit).max() <= 0.51


def test_residual_around_an_island_reads_its_codes_once() -> None:
    """Two bf16 readers of one tensor share its conversion; the integer reader keeps the codes."""
    m = Model()
    x = m.requantized(quantized_conv(m, m.qinput((1, 4, 6, 5), 0.02, 5), 4, 4), 0.011, -20)
    y = m.op("Mul", m.op("Conv", x, m.const(np.full((4, 4, 1, 1), 0.25, np.float32))), x)
    m.output(m.quantize(m.op("Add", m.requantized(y, 0.03, 2), x), 0.05), "int8")
    graph = single_graph(m.proto(), "mixed")
    assert modes(graph) == ["I2F", "F2I"]
    feeds = random_feeds(m.proto(), 1)
    theirs = onnxruntime_outputs(m.proto(), feeds)[0]
    assert np.abs(npu_outputs(graph, feeds)[0].astype(int) - theirs).max() <= 1


def test_what_crosses_to_the_cpu_crosses_as_codes() -> None:
    """Model input, model output, and an operator without an NPU form: their conversions stay in float32."""
    m = Model()
    x = m.requantized(quantized_conv(m, m.requantized(m.input((1, 4, 6, 5)), 0.02, 5), 4), 0.03)
    x = m.requantized(m.op("CumSum", x, m.const(np.array(1, np.int64))), 0.1)
    m.output(m.requantized(quantized_conv(m, x, 3), 0.02))
    parts = partitioned(m.proto(), "mixed")
    assert [op.op for op in parts.cpu_ops] == ["quantize", "dequantize", "cumsum", "quantize", "dequantize"]
    graphs = [lower_partition(parts.function(symbol), CONFIG) for symbol in parts.partitions]
    assert [ops(graph) for graph in graphs] == [["conv2d"], ["conv2d"]]


def test_float_input_goes_straight_into_a_float_operator() -> None:
    m = Model()
    y = m.op("Conv", m.input((1, 4, 6, 5)), m.const(np.full((4, 4, 1, 1), 0.3, np.float32)))
    m.output(m.quantize(quantized_conv(m, m.requantized(y, 0.02), 4), 0.02), "int8")
    graph = single_graph(m.proto(), "mixed")
    assert ops(graph) == ["conv2d", "sum2", "act", "conv2d"]
    assert graph.tensors[graph.inputs[0]].dtype is DType.BF16


def test_stored_codes_of_a_float_operator_become_numbers() -> None:
    """A quantized convolution behind which no quantize stands: bf16, with the values of its int8 weights."""
    m = Model()
    m.output(m.op("Sigmoid", quantized_conv(m, m.qinput((1, 4, 6, 5), 0.02, 5), 4)))
    graph = single_graph(m.proto(), "mixed")
    conv = next(node for node in graph.nodes if node.op == "conv2d")
    assert graph.tensors[conv.inputs[1]].dtype is DType.BF16
    feeds = random_feeds(m.proto())
    np.testing.assert_allclose(npu_outputs(graph, feeds)[0], onnxruntime_outputs(m.proto(), feeds)[0], atol=0.02)


def test_per_channel_activations_stay_on_the_cpu() -> None:
    m = Model()
    x = m.dequantize(m.input((1, 2, 4, 4), "int8"), np.array([0.1, 0.2]), 0, "int8", axis=1)
    m.output(m.op("Sigmoid", x))
    parts = partitioned(m.proto(), "mixed")
    assert [op.op for op in parts.cpu_ops] == ["dequantize"]


def test_division_by_int16_runs_in_bf16() -> None:
    """The integer form takes 8-bit divisors only."""
    m = Model()
    y = m.op("Div", m.qinput((2, 8), 0.1), m.qinput((2, 8), 1e-3, 0, "int16"))
    m.output(m.quantize(y, 0.3), "int8")
    graph = single_graph(m.proto(), "mixed")
    assert modes(graph).count("I2F") == 2 and "F2I" in modes(graph)
