"""Sums, products and extremes of two tensors against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relay_patterns.infra import Model, check_float, check_quantized, ops

SHAPE = (2, 3, 5, 4)


INT8 = ("int8", "int8")


def binary(
    kind,
    scales=(0.021, 0.0057),
    zeros=(-128, 127),
    dtypes=INT8,
    out=(0.025, -11, "int8"),
    shapes=(SHAPE, SHAPE),
    relu=False,
):
    m = Model()
    a, b = (m.qinput(s, scale, z, t) for s, scale, z, t in zip(shapes, scales, zeros, dtypes, strict=True))
    y = m.op(kind, a, b)
    m.output(m.quantize(m.op("Relu", y) if relu else y, *out), out[2])
    return m.proto()


@pytest.mark.parametrize("kind", ["Add", "Sub"])
@pytest.mark.parametrize(
    "scales, zeros",
    [((0.021, 0.0057), (-128, 127)), ((0.01, 0.01), (0, 0)), ((1e-5, 0.02), (5, -5)), ((0.03, 0.00031), (127, -128))],
)
def test_sums(kind, scales, zeros):
    assert ops(check_quantized(binary(kind, scales, zeros))) == ["sum2"]


def test_sum_of_equal_scales_takes_unit_weights():
    graph = check_quantized(binary("Add", (0.01, 0.01), (3, -3)))
    assert graph.nodes[0].attrs["weights"] == (1, 1)


def test_sum_of_int16_is_within_one_code_for_an_irrational_ratio():
    check_quantized(binary("Sub", (1e-4, 7.07106781e-5), (0, 0), ("int16", "int16"), (1.3e-4, 0, "int16")))


def test_relu_folds():
    assert ops(check_quantized(binary("Add", relu=True))) == ["sum2"]


@pytest.mark.parametrize(
    "dtypes, zeros",
    [(("int8", "uint8"), (-128, 255)), (("uint8", "uint8"), (0, 128)), (("int16", "int8"), (0, 9))],
)
@pytest.mark.parametrize("kind", ["Add", "Mul", "Max"])
def test_mixed_types(kind, dtypes, zeros):
    scales = (0.00004, 0.02) if dtypes[0] == "int16" else (0.02, 0.011)
    check_quantized(binary(kind, scales, zeros, dtypes))


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize("shapes", [(SHAPE, (3, 1, 1)), ((1, 3, 1, 4), (2, 1, 5, 1)), ((4,), SHAPE)])
def test_broadcasts(kind, shapes):
    check_quantized(binary(kind, shapes=shapes))


@pytest.mark.parametrize(
    "zeros, passes, kept",
    [((0, 0), 0, 0), ((-128, 0), 0, -128), ((0, 9), 0, 9), ((-128, 127), 1, 127), ((-7, 127), 1, -7)],
)
def test_products_subtract_one_zero_point_and_remove_the_other_first(zeros, passes, kept):
    graph = check_quantized(binary("Mul", (0.02, 0.03), zeros, out=(0.05, -3, "int8")))
    assert ops(graph) == ["act"] * passes + ["mul"]
    assert graph.nodes[-1].attrs.get("zero_point", 0) == kept


def test_codes_above_the_lowest_are_recoded_rather_than_widened():
    graph = check_quantized(binary("Mul", (0.02, 0.03), (-7, -128), out=(0.05, -3, "int8")))
    assert [graph.tensors[name].dtype.value for name in graph.nodes[-1].inputs] == ["int8", "uint8"]


def test_a_product_with_16_bits_keeps_the_zero_point_of_8():
    graph = check_quantized(binary("Mul", (0.00002, 0.03), (0, -7), ("int16", "int8"), out=(0.00005, 0, "int16")))
    assert ops(graph) == ["mul"]
    assert graph.nodes[0].attrs["zero_point"] == -7


@pytest.mark.parametrize("zeros", [(-7, 3), (-128, -128), (127, -128)])
def test_a_factor_that_repeats_loses_its_zero_point(zeros):
    graph = check_quantized(binary("Mul", zeros=zeros, shapes=(SHAPE, (1, 3, 1, 1))))
    assert graph.nodes[-1].attrs["zero_point"] == zeros[0]


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_extremes(kind):
    assert ops(check_quantized(binary(kind, (0.02, 0.02), (4, 4)))) == [kind.lower() + "imum"]
    assert ops(check_quantized(binary(kind)))[-1] == kind.lower() + "imum"


@pytest.mark.parametrize("kind", ["Add", "Mul", "Sub", "Max"])
@pytest.mark.parametrize("stored", ["float", "int8", "per channel"])
def test_constant_operand(kind, stored):
    rng = np.random.default_rng(5)
    m = Model()
    x = m.qinput(SHAPE, 0.02, -100)
    codes = rng.integers(-128, 128, (3, 1, 1)).astype(np.int8)
    if stored == "float":
        c = m.const((codes * 0.013).astype(np.float32))
    elif stored == "int8":
        c = m.qconst(codes, 0.013, 17)
    else:
        c = m.qconst(codes, np.array([0.01, 0.0001, 0.02]), 0)
    m.output(m.quantize(m.op(kind, c, x), 0.03, 2), "int8")
    check_quantized(m.proto())


@pytest.mark.parametrize("zeros", [(0, 1), (-128, -128), (-5, 127)])
def test_division(zeros):
    m = Model()
    y = m.op("Div", m.qinput(SHAPE, 0.02, zeros[0]), m.qinput((3, 1, 1), 0.02, zeros[1]))
    m.output(m.quantize(y, 0.03, 2), "int8")
    feeds_without_zero_divisor(m.proto())


def feeds_without_zero_divisor(model):
    """A zero divisor gives infinities in floats; the codes used here are never the zero point."""
    from tests.relay_patterns.infra import npu_outputs, onnxruntime_outputs, random_feeds, single_graph

    feeds = random_feeds(model)
    numerator, divisor = feeds
    feeds[divisor] = np.array([100, -99, 55], np.int8).reshape(3, 1, 1)
    graph = single_graph(model, "quantized")
    (ours,), (theirs,) = npu_outputs(graph, feeds), onnxruntime_outputs(model, feeds)
    assert np.unique(theirs).size > 10
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("shapes", [(SHAPE, SHAPE), (SHAPE, (3, 1, 1))])
def test_bf16(kind, shapes):
    m = Model()
    m.output(m.op(kind, m.input(shapes[0]), m.input(shapes[1])))
    check_float(m.proto(), spread=2.0)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Max"])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_bf16_constant(kind, left, size):
    m = Model()
    c = m.const(np.array([0.3, -1.7, 2.9], np.float32)[:size].reshape(size, 1, 1))
    x = m.input(SHAPE)
    m.output(m.op(kind, *((c, x) if left else (x, c))))
    check_float(m.proto())


def test_bf16_relu_folds():
    m = Model()
    m.output(m.op("Relu", m.op("Add", m.input(SHAPE), m.input(SHAPE))))
    assert ops(check_float(m.proto())) == ["sum2"]
