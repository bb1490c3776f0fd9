"""Operators on integers (QLinear..., ...Integer) against brute force, as the simulated program computes them.

0 LSB wherever the standard defines the integer result; the two table functions whose real value no finite sum gives
(sigmoid, softmax) say what they allow.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.end_to_end.exact_integers import F32, Codes, awkward, convolve, window_sums
from tests.end_to_end.harness import compile_and_compare
from tests.frontend.onnx_tools import graph_model
from torq_byoc.npu_model.config import NpuConfig

I8, U8, I16, U16 = np.int8, np.uint8, np.int16, np.uint16
MS = "com.microsoft"


def scalar(kind: Codes, name: str) -> dict[str, np.ndarray]:
    return {f"{name}s": np.asarray(kind.scale, F32), f"{name}z": kind.zero_point}


def run(op, inputs, feeds, held, *, domain="", out=np.uint8, version=17, on_npu=True, **attributes):
    """The output "y" of a model of one operator; ``on_npu``: nothing is left for the CPU."""
    nodes = [helper.make_node(op, inputs, ["y"], name="n", domain=domain, **attributes)]
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()}
    kinds["y"] = helper.np_dtype_to_tensor_dtype(np.dtype(out))
    shapes = {name: value.shape for name, value in feeds.items()}
    model = graph_model(nodes, shapes, ["y"], held, opset=version, dtypes=kinds, domains=[domain] if domain else [])
    outcome = compile_and_compare(model, feeds, NpuConfig())
    assert (not outcome.compiled.facts.cpu_ops) == on_npu, outcome.compiled.facts.cpu_ops
    return outcome.outputs["y"]


def same(got, wanted):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)
    assert wanted.size < 4 or len(np.unique(wanted)) > 2  # saturation everywhere would prove nothing


CONVOLUTIONS = {
    "uint8, per channel, asymmetric pads": (U8, 255, I8, 0, True, U8, 3, (1, 0, 2, 1), (2, 1), (1, 1), 1),
    "int8 by uint8, zero points at the edges": (I8, -128, U8, 255, False, I8, 127, (0, 2, 1, 0), (1, 1), (1, 2), 1),
    "depthwise, uint8 by uint8": (U8, 0, U8, 128, True, I8, -128, (1, 1, 1, 1), (1, 2), (1, 1), 4),
    "two groups, int8": (I8, 5, I8, 0, True, U8, 255, (0, 1, 1, 2), (2, 2), (2, 1), 2),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case):
    x_type, x_zero, w_type, w_zero, per_channel, y_type, y_zero, pads, strides, dilations, groups = CONVOLUTIONS[case]
    rng = np.random.default_rng(3)
    data = Codes(0.0371, x_zero, x_type)
    weights = Codes(rng.uniform(0.001, 0.03, 4).astype(F32) if per_channel else 0.0113, w_zero, w_type)
    result = Codes(0.83, y_zero, y_type)
    x = awkward((1, 4, 9, 7), data)
    w = awkward((4, 4 // groups, 3, 3), weights, 1)
    bias = rng.integers(-20000, 20000, 4).astype(np.int32)
    held = {**scalar(data, "x"), "w": w, **scalar(weights, "w"), **scalar(result, "y"), "b": bias}
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    got = run("QLinearConv", inputs, {"x": x}, held, out=y_type, pads=pads, strides=strides, dilations=dilations,
              group=groups)  # fmt: skip
    sums = convolve(data.centred(x), weights.centred(w), strides, pads, dilations, groups)
    unit = (data.factor * weights.factor).reshape(-1, 1, 1)
    same(got, result.of_terms((sums + bias.reshape(-1, 1, 1), unit)))


def test_convolution_rounds_ties_to_even():
    data, weights, result = Codes(0.5, 0, I8), Codes(0.25, 0, I8), Codes(0.5, -3, I8)
    x, w = awkward((1, 1, 5, 6), data, channel_axis=None), np.array([[[[1]]], [[[-2]]], [[[3]]]], I8)
    held = {**scalar(data, "x"), "w": w, **scalar(weights, "w"), **scalar(result, "y")}
    got = run("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], {"x": x}, held, out=I8)
    sums = convolve(data.centred(x), weights.centred(w), (1, 1), (0, 0, 0, 0))
    assert (sums % 4 == 2).any()  # ties
    same(got, result.of_terms((sums, 0.125)))


@pytest.mark.parametrize("shape", [(3, 5), (1, 7), (2, 3, 5), (2, 1, 3, 5)])
def test_matrix_product_with_constant_weights(shape):
    rng = np.random.default_rng(4)
    data, result = Codes(0.021, 255, U8), Codes(0.37, 0, U8)
    weights = Codes(rng.uniform(0.001, 0.02, 6).astype(F32), 0, I8)
    x, w = awkward(shape, data), awkward((shape[-1], 6), weights, 1)
    held = {**scalar(data, "x"), "w": w, **scalar(weights, "w"), **scalar(result, "y")}
    got = run("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], {"x": x}, held)
    same(got, result.of_terms((data.centred(x) @ weights.centred(w), data.factor * weights.factor)))


def test_matrix_product_of_two_tensors():
    left, right, result = Codes(0.021, 3, U8), Codes(0.013, -128, I8), Codes(0.9, 100, U8)
    a, b = awkward((2, 3, 5), left), awkward((2, 5, 4), right, 1)
    held = {**scalar(left, "a"), **scalar(right, "b"), **scalar(result, "y")}
    got = run("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], {"a": a, "b": b}, held)
    same(got, result.of_terms((left.centred(a) @ right.centred(b), left.factor * right.factor)))


def test_matrix_product_with_scales_of_rows_and_columns_as_matrices():
    rng = np.random.default_rng(6)
    data, result = Codes(rng.uniform(0.001, 0.05, 3).astype(F32), 128, U8), Codes(0.37, 9, U8)
    weights = Codes(rng.uniform(0.001, 0.02, 4).astype(F32), 7, I8)
    x, w = awkward((2, 3, 5), data), awkward((2, 5, 4), weights, 1)
    column = {"xs": np.reshape(data.scale, (1, 3, 1)), "xz": data.zero_point.reshape(1, 3, 1)}
    row = {"ws": np.reshape(weights.scale, (1, 1, 4)), "wz": weights.zero_point.reshape(1, 1, 4)}
    held = {**column, "w": w, **row, **scalar(result, "y")}
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    got = run("QLinearMatMul", inputs, {"x": x}, held, on_npu=False)
    unit = data.factor.reshape(-1, 1) * weights.factor
    same(got, result.of_terms((data.centred(x) @ weights.centred(w), unit)))


@pytest.mark.parametrize(("by_rows", "alpha", "bias_shape"), [(1, 1.0, (4,)), (0, 0.5, (1, 4)), (1, 2.0, (1,))])
def test_gemm(by_rows, alpha, bias_shape):
    """The bias counts alpha times both scales."""
    rng = np.random.default_rng(7)
    data, result = Codes(0.03, -128, I8), Codes(0.21, 4, I8)
    weights = Codes(rng.uniform(0.001, 0.02, 4).astype(F32), 0, I8)
    x, w = awkward((3, 5), data), awkward((4, 5) if by_rows else (5, 4), weights, 1)
    bias = rng.integers(-9000, 9000, bias_shape).astype(np.int32)
    held = {**scalar(data, "x"), "w": w, **scalar(weights, "w"), **scalar(result, "y"), "b": bias}
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"]
    got = run("QGemm", inputs, {"x": x}, held, domain=MS, out=I8, transB=by_rows, alpha=alpha)
    matrix = weights.centred(w).T if by_rows else weights.centred(w)
    same(got, result.of_terms((data.centred(x) @ matrix + bias, data.factor * weights.factor * alpha)))


BINARY = {
    "a row to both": ((2, 3, 4, 5), (1, 3, 1, 5), U8, 255, I8, -128, U8, 128),
    "a scalar": ((1, 27), (1,), I8, 127, I8, 119, I8, 100),
    "of size 1": ((1, 1, 1, 1), (1, 1, 1, 1), U8, 128, U8, 255, U8, 0),
}


@pytest.mark.parametrize("case", BINARY)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(op, case):
    a_shape, b_shape, a_type, a_zero, b_type, b_zero, y_type, y_zero = BINARY[case]
    first, second = Codes(0.0173, a_zero, a_type), Codes(0.0261, b_zero, b_type)
    result = Codes(0.034, y_zero, y_type)
    a, b = awkward(a_shape, first), awkward(b_shape, second, 1)
    held = {**scalar(first, "a"), **scalar(second, "b"), **scalar(result, "y")}
    inputs = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    got = run(op, inputs, {"a": a, "b": b}, held, domain=MS, out=y_type)
    if op == "QLinearAdd":
        terms = [(first.centred(a), first.factor), (second.centred(b), second.factor)]
    else:
        terms = [(first.centred(a) * second.centred(b), first.factor * second.factor)]
    same(got, result.of_terms(*terms))


def test_addition_without_zero_points():
    first, second, result = Codes(0.5, 0, U8), Codes(0.25, 0, U8), Codes(1.0, 0, U8)
    a, b = awkward((1, 3, 5), first), awkward((1, 3, 5), second, 1)
    held = {"as": F32(0.5), "bs": F32(0.25), "ys": F32(1.0)}
    got = run("QLinearAdd", ["a", "as", "", "b", "bs", "", "ys"], {"a": a, "b": b}, held, domain=MS)
    same(got, result.of_terms((first.centred(a), 0.5), (second.centred(b), 0.25)))


def test_leaky_relu():
    data, result = Codes(0.0371, 100, U8), Codes(0.029, -100, I8)
    x = np.arange(256, dtype=U8).reshape(1, 4, 8, 8)
    held = {**scalar(data, "x"), **scalar(result, "y")}
    inputs = ["x", "xs", "xz", "ys", "yz"]
    got = run("QLinearLeakyRelu", inputs, {"x": x}, held, domain=MS, out=I8, alpha=0.21)
    slopes = np.where(data.centred(x) < 0, float(F32(0.21)), 1.0)
    same(got, result.of_terms((data.centred(x), data.factor * slopes)))


def test_sigmoid():
    """All 256 codes; the logistic function in float64 is far closer to the real one than any code is to a tie."""
    data, result = Codes(0.0471, 120, U8), Codes(1 / 256, 0, U8)
    x = np.arange(256, dtype=U8).reshape(1, 4, 64)
    held = {**scalar(data, "x"), **scalar(result, "y")}
    got = run("QLinearSigmoid", ["x", "xs", "xz", "ys", "yz"], {"x": x}, held, domain=MS)
    same(got, result.codes(1 / (1 + np.exp(-data.real(x)))))


@pytest.mark.parametrize("case", [(17, 13, 1), (17, 11, 1), (11, 13, 1), (11, 11, 2), (13, 12, -1)])
def test_softmax(case):
    """One code of freedom: the standard does not define exponentials in integers."""
    opset, meant, axis = case
    data, result = Codes(0.0471, 255, U8), Codes(1 / 256, 0, U8)
    x = awkward((2, 3, 5), data)
    held = {**scalar(data, "x"), **scalar(result, "y")}
    inputs = ["x", "xs", "xz", "ys", "yz"]
    got = run("QLinearSoftmax", inputs, {"x": x}, held, domain=MS, version=opset, axis=axis, opset=meant)
    real = data.real(x)
    if meant < 13:
        real = real.reshape(int(np.prod(real.shape[: axis % 3])), -1)
    powers = np.exp(real - real.max(axis=axis if meant >= 13 else -1, keepdims=True))
    shares = (powers / powers.sum(axis=axis if meant >= 13 else -1, keepdims=True)).reshape(x.shape)
    assert np.abs(got.astype(int) - result.codes(shares).astype(int)).max() <= 1


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("counted", [0, 1])
def test_average_pool(last, counted):
    data, result = Codes(0.03, 0, U8), Codes(0.021, 7, I8)
    x = awkward((1, 3, 8, 7), data)
    pads, strides, kernel = (1, 0, 0, 1), (2, 1), (3, 2)
    held = {**scalar(data, "x"), **scalar(result, "y")}
    fed = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "count_include_pad": counted}
    inputs = ["x", "xs", "xz", "ys", "yz"]
    got = run("QLinearAveragePool", inputs, {"x": fed}, held, domain=MS, out=I8, channels_last=last, **attributes)
    sums = window_sums(data.centred(x), kernel, strides, pads)
    counts = 6 if counted else window_sums(np.ones_like(x, np.int64), kernel, strides, pads)
    wanted = result.of_terms((sums, data.factor), divisor=counts)
    same(got, np.moveaxis(wanted, 1, -1) if last else wanted)


@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(last):
    data, result = Codes(0.03, -128, I8), Codes(0.011, -5, I8)
    x = awkward((2, 5, 7, 3), data)
    held = {**scalar(data, "x"), **scalar(result, "y")}
    fed = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    inputs = ["x", "xs", "xz", "ys", "yz"]
    got = run("QLinearGlobalAveragePool", inputs, {"x": fed}, held, domain=MS, out=I8, channels_last=last)
    sums = data.centred(x).sum(axis=(2, 3), keepdims=True)
    wanted = result.of_terms((sums, data.factor), divisor=21)
    same(got, np.moveaxis(wanted, 1, -1) if last else wanted)


def test_concatenation():
    kinds = [Codes(0.05, 0, U8), Codes(0.013, 255, U8), Codes(0.02, 128, U8)]
    parts = [awkward((1, n, 3), kind, n) for n, kind in zip((1, 4, 2), kinds, strict=True)]
    result = Codes(0.02, 128, U8)
    held = {**scalar(result, "y")}
    inputs = ["ys", "yz"]
    for name, kind in zip("abc", kinds, strict=True):
        held |= scalar(kind, name)
        inputs += [name, f"{name}s", f"{name}z"]
    got = run("QLinearConcat", inputs, dict(zip("abc", parts, strict=True)), held, domain=MS, axis=1)
    pairs = zip(kinds, parts, strict=True)
    same(got, np.concatenate([result.of_terms((kind.centred(part), kind.factor)) for kind, part in pairs], axis=1))


@pytest.mark.parametrize(("opset", "keep"), [(17, 1), (18, 0), (13, 0)])
def test_mean(opset, keep):
    data, result = Codes(0.03, 200, U8), Codes(0.011, 100, U8)
    x = awkward((2, 3, 5, 4), data)
    held = {**scalar(data, "x"), **scalar(result, "y")}
    inputs = ["x", "xs", "xz", "ys", "yz"]
    got = run("QLinearReduceMean", inputs, {"x": x}, held, domain=MS, version=opset, axes=[1, 3], keepdims=keep)
    sums = data.centred(x).sum(axis=(1, 3), keepdims=bool(keep))
    same(got, result.of_terms((sums, data.factor), divisor=12))


def test_choice():
    """On the CPU: the NPU has no choice between tensors."""
    first, second, result = Codes(0.017, 0, U8), Codes(0.026, 255, U8), Codes(0.034, 128, U8)
    a, b = awkward((2, 3, 5), first), awkward((1, 3, 1), second, 1)
    condition = np.random.default_rng(1).random((2, 1, 5)) < 0.5
    held = {**scalar(first, "a"), **scalar(second, "b"), **scalar(result, "y")}
    inputs = ["c", "a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    got = run("QLinearWhere", inputs, {"c": condition, "a": a, "b": b}, held, domain=MS, on_npu=False)
    chosen = (np.where(condition, first.centred(a), 0), first.factor)
    others = (np.where(condition, 0, second.centred(b)), second.factor)
    same(got, result.of_terms(chosen, others))
