"""Element-wise functions of one tensor: affine maps, tables, chains; integers and bf16."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, ops

SHAPE = (1, 3, 16, 20)


def unary(build, scale=0.05, zero=-7, dtype="int8", out=(0.02, -30, "int8")):
    m = Model()
    m.output(m.quantize(build(m, m.qinput(SHAPE, scale, zero, dtype)), *out), out[2])
    return m.proto()


def const(m, value):
    return m.const(np.float32(value))


def leaky(m, x):
    return m.op("LeakyRelu", x, alpha=0.1)


AFFINE = {
    "requantize": lambda m, x: x,
    "relu": lambda m, x: m.op("Relu", x),
    "relu6": lambda m, x: m.op("Clip", x, const(m, 0.0), const(m, 6.0)),
    "times": lambda m, x: m.op("Mul", const(m, -0.37), x),
    "plus": lambda m, x: m.op("Add", x, const(m, 0.777)),
    "constant minus": lambda m, x: m.op("Sub", const(m, 1.234), x),
    "over": lambda m, x: m.op("Div", x, const(m, 3.0)),
    "neg": lambda m, x: m.op("Neg", x),
    "min": lambda m, x: m.op("Min", x, const(m, 1.25)),
    "hardsigmoid": lambda m, x: m.op("HardSigmoid", x, alpha=0.2, beta=0.5),
    "chain": lambda m, x: m.op(
        "Sub", m.op("Clip", m.op("Mul", x, const(m, -2.0)), const(m, -1.0), const(m, 4.0)), const(m, 0.3)
    ),
}
TABLES = {
    "sigmoid": lambda m, x: m.op("Sigmoid", x),
    "tanh": lambda m, x: m.op("Tanh", x),
    "erf": lambda m, x: m.op("Erf", x),
    "exp": lambda m, x: m.op("Exp", x),
    "gelu": lambda m, x: m.op("Gelu", x),
    "mish": lambda m, x: m.op("Mish", x),
    "softplus": lambda m, x: m.op("Softplus", x),
    "silu": lambda m, x: m.op("Mul", x, m.op("Sigmoid", x)),
    "cube root of a sum": lambda m, x: m.op("Pow", m.op("Abs", m.op("Add", x, const(m, 0.5))), const(m, 1 / 3)),
    "sqrt": lambda m, x: m.op("Sqrt", m.op("Abs", x)),
}
PRODUCTS = {
    "abs": lambda m, x: m.op("Abs", x),
    "hardswish": lambda m, x: m.op("HardSwish", x),
    "square": lambda m, x: m.op("Mul", x, x),
    "written out": lambda m, x: m.op(
        "Div", m.op("Mul", x, m.op("Clip", m.op("Add", x, const(m, 3.0)), const(m, 0.0), const(m, 6.0))), const(m, 6.0)
    ),
}


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("int8", 40), ("uint8", 230), ("int16", 0)])
def test_affine_maps_take_one_pass(name, dtype, zero):
    scale = 0.0002 if dtype == "int16" else 0.05
    graph = check_quantized(unary(AFFINE[name], scale, zero, dtype))
    assert ops(graph) in (["act"], ["mul"])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("int8", 3), ("uint8", 200)])
def test_any_other_function_of_8_bits_is_one_table(name, dtype, zero):
    assert ops(check_quantized(unary(TABLES[name], 0.03, zero, dtype))) == ["table"]


@pytest.mark.parametrize(
    ("dtype", "zero", "wanted"),
    [
        ("int8", 0, ["weighted_max"]),
        ("int8", 3, ["act", "weighted_sum"]),
        ("uint8", 200, ["act", "weighted_sum"]),
        ("int8", -128, ["act"]),
        ("int16", 0, ["act", "act", "maximum"]),
    ],
)
def test_a_leaky_relu_is_no_table(dtype, zero, wanted):
    assert ops(check_quantized(unary(leaky, 0.0002 if dtype == "int16" else 0.03, zero, dtype))) == wanted


def test_a_leaky_relu_in_a_chain_is_one_table():
    def build(m, x):
        return m.op("Tanh", leaky(m, x))

    assert ops(check_quantized(unary(build, 0.03, 0))) == ["table"]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("int8", 3), ("int8", 127), ("uint8", 200)])
def test_products_of_the_tensor_with_a_clipped_line_need_no_table(name, dtype, zero):
    graph = check_quantized(unary(PRODUCTS[name], 0.03, zero, dtype))
    assert ops(graph) in (["act", "mul"], ["mul"], ["act"])


@pytest.mark.parametrize("name, zero", [("elu", -128), ("abs", 127)])
def test_a_function_that_is_a_line_on_all_codes_is_one_pass(name, zero):
    assert ops(check_quantized(unary(BF16[name], 0.03, zero))) == ["act"]


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu", "hardswish"])
def test_16_bit_tables_for_8_bit_results(name):
    check_quantized(unary({**TABLES, **PRODUCTS}[name], 0.0002, 0, "int16"))


def test_a_quantized_constant_in_a_chain():
    def build(m, x):
        return m.op("Mul", x, m.qconst(np.array(127, np.int8), 0.000693, -128))

    assert ops(check_quantized(unary(build))) == ["act"]


def test_relu_of_its_own_scale_folds_into_the_layer_before():
    m = Model()
    rng = np.random.default_rng(6)
    w = m.qconst(rng.integers(-127, 128, (4, 3, 1, 1)).astype(np.int8), 0.01)
    y = m.requantized(m.op("Conv", m.qinput((1, 3, 6, 6), 0.02, 5), w), 0.04, -9)
    m.output(m.quantize(m.op("Relu", y), 0.04, -9), "int8")
    graph = check_quantized(m.proto())
    assert ops(graph) == ["conv2d"]
    assert graph.nodes[0].rescale.clip_min == -9


def test_a_layer_read_twice_keeps_its_values():
    m = Model()
    x = m.qinput((1, 3, 6, 6), 0.02, 5)
    y = m.requantized(m.op("Add", x, m.qinput((1, 3, 6, 6), 0.03, 1)), 0.04, -9)
    z = m.requantized(m.op("Relu", y), 0.04, -9)
    m.output(m.quantize(m.op("Sub", z, y), 0.05, 0), "int8")
    assert ops(check_quantized(m.proto())) == ["sum2", "act"]


def test_zero_points_are_removed_once_for_all_readers():
    m = Model()
    x, y, z = (m.qinput((2, 6), 0.02, zero) for zero in (-5, 3, 7))
    a, b = (m.requantized(m.op("Mul", other, x), 0.03, 1) for other in (y, z))
    m.output(m.quantize(m.op("Add", a, b), 0.05), "int8")
    assert ops(check_quantized(m.proto())) == ["act", "mul", "mul", "sum2"]


BF16 = {
    **TABLES,
    "leaky": leaky,
    **AFFINE,
    **PRODUCTS,
    "elu": lambda m, x: m.op("Elu", x, alpha=0.7),
    "log": lambda m, x: m.op("Log", m.op("Abs", x)),
    "reciprocal": lambda m, x: m.op("Reciprocal", m.op("Add", m.op("Abs", x), const(m, 0.25))),
    "selu": lambda m, x: m.op("Selu", x),
    "floor": lambda m, x: m.op("Floor", x),
    "sin": lambda m, x: m.op("Sin", x),
    "gelu written out": lambda m, x: m.op(
        "Mul",
        m.op("Mul", x, m.op("Add", m.op("Erf", m.op("Div", x, const(m, 2**0.5))), const(m, 1.0))),
        const(m, 0.5),
    ),
    "softsign": lambda m, x: m.op("Softsign", x),
    "prelu": lambda m, x: m.op("PRelu", x, m.const(np.array([0.1, 0.5, -0.3], np.float32).reshape(3, 1, 1))),
}


@pytest.mark.parametrize("name", [name for name in BF16 if name != "requantize"])
def test_bf16(name):
    m = Model()
    m.output(BF16[name](m, m.input(SHAPE)))
    check_float(m.proto(), spread=2.0)


def test_hardswish_is_two_passes_in_bf16():
    m = Model()
    m.output(m.op("HardSwish", m.input(SHAPE)))
    assert len(check_float(m.proto()).nodes) == 2


def test_a_chain_with_other_constants_is_not_mistaken():
    m = Model()
    x = m.input(SHAPE)
    gate = m.op("Div", m.op("Clip", m.op("Add", x, const(m, 2.0)), const(m, 0.0), const(m, 6.0)), const(m, 6.0))
    m.output(m.op("Mul", x, gate))
    check_float(m.proto(), spread=2.0)


def test_quantized_prelu():
    m = Model()
    slopes = m.qconst(np.array([10, -100, 127], np.int8).reshape(3, 1, 1), 0.004)
    m.output(m.quantize(m.op("PRelu", m.qinput(SHAPE, 0.03, -20), slopes), 0.025, 4), "int8")
    check_quantized(m.proto())
