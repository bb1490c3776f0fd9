"""Softmax and the normalisations against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, ops


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
