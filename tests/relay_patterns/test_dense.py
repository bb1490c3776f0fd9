"""Matrix products against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, ops


def weighted(kind="MatMul", shape=(3, 11), columns=7, dtype="int8", zero_points=(-128, 127), bias="", per_column=True):
    rng = np.random.default_rng(2)
    m = Model()
    x = m.qinput(shape, 0.031, zero_points[0], dtype)
    codes = rng.integers(-127, 128, (shape[-1], columns)).astype(np.int8)
    scales = 10.0 ** rng.uniform(-4, -2, columns) if per_column else np.asarray(0.004)
    attrs = {}
    if kind == "Gemm":
        codes, attrs = codes.T, {"transB": 1}
    inputs = [x, m.qconst(codes, scales, 0, axis=0 if kind == "Gemm" else 1)]
    if bias == "gemm":
        unit = np.float32(0.031) * np.broadcast_to(np.float32(scales), columns)
        inputs.append(m.qconst(rng.integers(-9000, 9000, columns).astype(np.int32), unit, 0))
    y = m.op(kind, *inputs, **attrs)
    if bias == "add":
        y = m.op("Add", m.const(rng.standard_normal(columns).astype(np.float32)), y)
    m.output(m.quantize(m.op("Relu", y) if bias else y, 0.06, zero_points[1], dtype), dtype)
    return m.proto()


@pytest.mark.parametrize("zero_points", [(-128, 127), (0, 0), (127, -128)])
@pytest.mark.parametrize("shape", [(3, 11), (2, 1, 11), (1, 2, 3, 4)])
def test_constant_weights(zero_points, shape):
    assert ops(check_quantized(weighted(shape=shape, zero_points=zero_points))) == ["matmul"]


@pytest.mark.parametrize("bias", ["gemm", "add"])
def test_bias_and_relu_fold(bias):
    kind = "Gemm" if bias == "gemm" else "MatMul"
    assert ops(check_quantized(weighted(kind, bias=bias, zero_points=(5, -100)))) == ["matmul"]


@pytest.mark.parametrize("dtype, zero_points", [("uint8", (255, 0)), ("int16", (0, 0))])
def test_types(dtype, zero_points):
    check_quantized(weighted(dtype=dtype, zero_points=zero_points))


def test_one_scale_gives_one_rescale_entry():
    graph = check_quantized(weighted(per_column=False, zero_points=(0, 0)))
    assert graph.nodes[0].rescale.bias.size == 1


def activations(a_shape, b_shape, a_zero, b_zero, dtype="int8"):
    m = Model()
    y = m.op("MatMul", m.qinput(a_shape, 0.02, a_zero, dtype), m.qinput(b_shape, 0.017, b_zero, dtype))
    m.output(m.quantize(y, 0.05, -3), "int8")
    return m.proto()


@pytest.mark.parametrize("zeros, passes", [((0, 0), 0), ((-128, 0), 1), ((0, 5), 1), ((-128, 127), 2)])
def test_zero_points_of_two_activations_are_removed_first(zeros, passes):
    graph = check_quantized(activations((2, 5, 9), (2, 9, 4), *zeros))
    assert ops(graph) == ["act"] * passes + ["matmul"]


def test_broadcast_batches_and_unsigned():
    check_quantized(activations((2, 3, 5, 9), (3, 9, 4), 12, 250, "uint8"))


def test_left_constant():
    m = Model()
    a = m.qconst(np.random.default_rng(3).integers(-128, 128, (4, 6)).astype(np.int8), 0.01, 7)
    m.output(m.quantize(m.op("MatMul", a, m.qinput((6, 5), 0.02, -9)), 0.03, 1), "int8")
    check_quantized(m.proto())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(3, 33), (2, 1, 40)])
def test_bf16_weights(shape, bias):
    rng = np.random.default_rng(4)
    m = Model()
    y = m.op("MatMul", m.input(shape), m.const(rng.standard_normal((shape[-1], 9)).astype(np.float32)))
    if bias:
        y = m.op("Relu", m.op("Add", y, m.const(rng.standard_normal(9).astype(np.float32))))
    m.output(y)
    assert ops(check_float(m.proto())) == ["matmul"]


def test_bf16_activations():
    m = Model()
    m.output(m.op("MatMul", m.input((2, 3, 8)), m.input((2, 8, 5))))
    assert ops(check_float(m.proto())) == ["matmul"]
