"""Pools and reductions against onnxruntime."""

from __future__ import annotations

import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, ops

WINDOWS = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [1, 2], "pads": [0, 1, 1, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2, 2, 2, 2]},
]


def pool(kind, attrs, *, shape=(1, 3, 10, 11), zero=-128, dtype="int8", out=None):
    m = Model()
    scale = 0.02 if dtype != "int16" else 1e-4
    y = m.op(kind, m.qinput(shape, scale, zero, dtype), **attrs)
    m.output(m.quantize(y, *(out or (scale, zero, dtype))), dtype)
    return m.proto()


@pytest.mark.parametrize("attrs", [*WINDOWS, {"kernel_shape": [3, 3], "dilations": [2, 1], "strides": [1, 1]}])
@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("int8", 100), ("uint8", 255), ("int16", 0)])
def test_max_pool(attrs, dtype, zero):
    graph = check_quantized(pool("MaxPool", attrs, dtype=dtype, zero=zero), max_lsb=0)
    passes = 2 if attrs["kernel_shape"] == [5, 5] else 1
    assert [op for op in ops(graph) if op != "pad"] == ["maxpool"] * passes


def test_max_pool_requantizes():
    check_quantized(pool("MaxPool", WINDOWS[0], out=(0.013, 7, "int8")))


@pytest.mark.parametrize("attrs", WINDOWS)
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("int8", 127), ("uint8", 3)])
def test_average_pool(attrs, include, dtype, zero):
    out = (0.011, 100 if dtype == "uint8" else 4, dtype)
    check_quantized(pool("AveragePool", {**attrs, "count_include_pad": include}, dtype=dtype, zero=zero, out=out))


def test_average_pool_without_pads_needs_one_multiplier():
    graph = check_quantized(pool("AveragePool", WINDOWS[0]))
    assert graph.nodes[-1].rescale.axis is None


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_one_dimension(kind):
    check_quantized(pool(kind, {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}, shape=(2, 4, 17)))


@pytest.mark.parametrize("zero", [-128, 127, 0])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_global_average(zero, dtype):
    if dtype == "int16":
        zero = 0
    scale = 0.02 if dtype == "int8" else 1e-5
    graph = check_quantized(
        pool("GlobalAveragePool", {}, shape=(2, 5, 7, 7), zero=zero, dtype=dtype, out=(scale, zero, dtype))
    )
    assert ops(graph) == (["reduce", "reduce"] if dtype == "int8" else ["reduce"])


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes, keep", [([1], 1), ([2, 3], 0), ([-1], 1), ([0, 2], 0), ([1, 2, 3], 1)])
def test_reductions(kind, axes, keep):
    import numpy as np

    m = Model()
    y = m.op(kind, m.qinput((4, 3, 4, 5), 0.02, -100), m.const(np.array(axes, np.int64)), keepdims=keep)
    m.output(m.quantize(y, 1.1 if kind == "ReduceSum" else 0.02, -100), "int8")
    assert ops(check_quantized(m.proto())) == ["reduce"]


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("attrs", WINDOWS)
def test_bf16_pools(kind, attrs):
    m = Model()
    m.output(m.op(kind, m.input((1, 3, 10, 11)), **attrs))
    check_float(m.proto())


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"])
def test_bf16_reductions(kind):
    import numpy as np

    m = Model()
    m.output(m.op(kind, m.input((2, 3, 4, 5)), m.const(np.array([1, 3], np.int64)), keepdims=0))
    check_float(m.proto())
