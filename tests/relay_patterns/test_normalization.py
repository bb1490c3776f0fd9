"""Softmax and the normalisations against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, npu_outputs, ops, partitioned, random_feeds


@pytest.mark.parametrize("axis", [-1, 1, 2])
@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("uint8", 77)])
def test_quantized_softmax(axis, dtype, zero):
    m = Model()
    y = m.op("Softmax", m.qinput((2, 5, 7), 0.03, zero, dtype), axis=axis)
    m.output(m.quantize(y, 1 / 256, -128), "int8")
    check_quantized(m.proto())


def test_quantized_lrn():
    m = Model()
    y = m.op("LRN", m.qinput((1, 8, 5, 5), 0.1, -3), size=5, alpha=0.3, beta=0.75, bias=1.0)
    m.output(m.quantize(y, 0.05, 1), "int8")
    check_quantized(m.proto())


@pytest.mark.parametrize("axis", [-1, 1])
def test_bf16_softmax(axis):
    m = Model()
    m.output(m.op("Softmax", m.input((2, 5, 7)), axis=axis))
    check_float(m.proto(), spread=3.0)


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_bf16_layer_norm_survives_a_large_common_offset(offset):
    rng = np.random.default_rng(7)
    m = Model()
    x = m.op("Add", m.op("Relu", m.input((2, 9, 32))), m.const(np.float32(offset)))
    gain, shift = (m.const(rng.standard_normal(32).astype(np.float32)) for _ in range(2))
    m.output(m.op("LayerNormalization", x, gain, shift, axis=-1, epsilon=1e-5))
    check_float(m.proto())


def quantized_layer_norm(shape, axis, zero, dtype, epsilon=1e-5, gain=None, shift=None, out="int8", scale=0.02):
    """LayerNormalization of codes, in steps of the result that hold nearly all values."""
    rng = np.random.default_rng(3)
    rows = shape[axis:]
    gain = (
        np.where(rng.random(rows) < 0.05, 4.0, 1.0) * rng.standard_normal(rows) if gain is None else np.full(rows, gain)
    )
    shift = rng.standard_normal(rows) if shift is None else np.full(rows, shift)
    m = Model()
    x = m.qinput(shape, scale, zero, dtype)
    gains, shifts = (m.const(values.astype(np.float32)) for values in (gain, shift))
    y = m.op("LayerNormalization", x, gains, shifts, axis=axis, epsilon=epsilon)
    m.output(m.quantize(y, 0.05, 5, out), out)
    return m.proto()


@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("int8", 17), ("uint8", 255)])
@pytest.mark.parametrize(
    "shape, axis", [((2, 9, 32), -1), ((2, 4, 6, 8), -2), ((3, 7, 5), 1), ((300, 3), -1), ((1, 1000), -1)]
)
def test_quantized_layer_norm(shape, axis, dtype, zero):
    check_quantized(quantized_layer_norm(shape, axis, zero, dtype))


@pytest.mark.parametrize("scale", [1e-4, 0.02, 1000.0])
def test_rows_of_equal_codes_are_their_offsets(scale):
    """Whatever epsilon: the first and the last rows of these codes have no variance."""
    model = quantized_layer_norm((1, 64, 384), -1, 0, "uint8", epsilon=1e-12, scale=scale)
    graph = check_quantized(model)
    codes = random_feeds(model)[graph.inputs[0]]
    assert len(set(codes[0, 0])) == 1 and len(set(codes[0, 63])) == 1
    result = npu_outputs(graph, {graph.inputs[0]: codes})[0]
    np.testing.assert_array_equal(result[0, 0], result[0, 63])


@pytest.mark.parametrize(
    "model, reason",
    [
        (quantized_layer_norm((4, 8), -1, 0, "int16"), "16 bits"),
        (quantized_layer_norm((4, 8), -1, 0, "int8", out="int16"), "16 bits"),
        (quantized_layer_norm((4, 8), -1, 0, "int8", gain=np.inf), "gains or offsets"),
        (quantized_layer_norm((4, 8), -1, 0, "int8", shift=np.nan), "gains or offsets"),
        (quantized_layer_norm((4, 8), -1, 0, "int8", gain=1e38), "gains or offsets"),
        (quantized_layer_norm((4, 8), -1, 0, "int8", scale=1e-30), "epsilon"),
    ],
)
def test_layer_norms_of_codes_that_stay_on_the_cpu(model, reason):
    reasons = [op.reason for op in partitioned(model, "quantized").cpu_ops]
    assert any(reason in given for given in reasons), reasons


def test_bf16_instance_norm():
    rng = np.random.default_rng(8)
    m = Model()
    gain, shift = (m.const(rng.standard_normal(6).astype(np.float32)) for _ in range(2))
    m.output(m.op("InstanceNormalization", m.input((1, 6, 8, 8)), gain, shift))
    check_float(m.proto())


def test_bf16_lrn():
    m = Model()
    m.output(m.op("LRN", m.input((1, 8, 5, 5)), size=5, alpha=0.3, beta=0.75, bias=2.0))
    assert "table" in ops(check_float(m.proto(), spread=3.0))
