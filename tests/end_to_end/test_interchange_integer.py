"""Products of integers with int32 results, and operators that quantize their data at run time, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.end_to_end.exact_integers import F32, Codes, awkward, convolve
from tests.end_to_end.harness import compile_and_compare
from tests.frontend.onnx_tools import graph_model, node
from torq_byoc.npu_model.config import NpuConfig

I8, U8 = np.int8, np.uint8
MS = "com.microsoft"


def outcome_of(nodes, feeds, outputs, held, kinds=None, domain=""):
    dtypes = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()} | (kinds or {})
    shapes = {name: value.shape for name, value in feeds.items()}
    model = graph_model(nodes, shapes, outputs, held, dtypes=dtypes, domains=[domain] if domain else [])
    return compile_and_compare(model, feeds, NpuConfig())


def left_behind(outcome):
    return {op.op for op in outcome.compiled.facts.cpu_ops}


PRODUCTS = {
    "uint8 by int8": ((3, 5), (5, 4), Codes(1, 255, U8), Codes(1, 0, I8), True),
    "int8 by uint8": ((1, 7), (7, 3), Codes(1, -128, I8), Codes(1, 200, U8), True),
    "batched weights": ((2, 3, 5), (2, 5, 4), Codes(1, 9, U8), Codes(1, 3, I8), True),
    "a size-1 sum": ((4, 1), (1, 1), Codes(1, 0, U8), Codes(1, -128, I8), True),
    "two tensors": ((2, 3, 5), (2, 5, 4), Codes(1, 128, U8), Codes(1, 255, U8), False),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_matmul_integer(case):
    a_shape, b_shape, left, right, stored = PRODUCTS[case]
    a, b = awkward(a_shape, left), awkward(b_shape, right, 1)
    held = {"az": left.zero_point, "bz": right.zero_point, **({"b": b} if stored else {})}
    feeds = {"a": a, **({} if stored else {"b": b})}
    nodes = [node("MatMulInteger", ["a", "b", "az", "bz"], "y", "n")]
    outcome = outcome_of(nodes, feeds, ["y"], held, {"y": TensorProto.INT32})
    assert not left_behind(outcome)
    assert outcome.outputs["y"].dtype == np.int32
    np.testing.assert_array_equal(outcome.outputs["y"], left.centred(a) @ right.centred(b))


def test_matmul_integer_with_zero_points_of_rows_and_columns():
    """Rows with zero points of their own stay on the CPU, columns do not."""
    a, b = awkward((3, 5), Codes(1, 7, U8)), awkward((5, 4), Codes(1, -3, I8), 1)
    rows, columns = np.array([0, 255, 7], U8), np.array([0, -128, 127, 5], I8)
    wanted = (a.astype(np.int64) - rows[:, None]) @ (b.astype(np.int64) - columns)
    nodes = [node("MatMulInteger", ["a", "b", "az", "bz"], "y", "n")]
    one = (a.astype(np.int64) - 9) @ (b.astype(np.int64) - columns)
    for zeros, expected, cpu in ((rows, wanted, True), (np.array([9], U8), one, False)):
        outcome = outcome_of(nodes, {"a": a}, ["y"], {"b": b, "az": zeros, "bz": columns}, {"y": TensorProto.INT32})
        assert bool(left_behind(outcome)) == cpu
        assert not cpu or any("zero points" in op.reason for op in outcome.compiled.facts.cpu_ops)
        np.testing.assert_array_equal(outcome.outputs["y"], expected)


def test_a_sum_beyond_int32_is_left_to_the_cpu_by_name():
    inner = 33100
    a, b = np.full((1, inner), 255, U8), np.full((inner, 1), 127, I8)
    nodes = [node("MatMulInteger", ["a", "b", "az", "bz"], "y", "n")]
    held = {"b": b, "az": np.array(0, U8), "bz": np.array(-128, I8)}
    outcome = outcome_of(nodes, {"a": a - 1}, ["y"], held, {"y": TensorProto.INT32})
    assert any("beyond int32" in op.reason for op in outcome.compiled.facts.cpu_ops)
    np.testing.assert_array_equal(outcome.outputs["y"], [[254 * 255 * inner]])


CONVOLUTIONS = {
    "asymmetric pads": (Codes(1, 255, U8), Codes(1, 0, I8), (1, 0, 2, 1), (2, 1), (1, 1), 1),
    "groups and dilation": (Codes(1, -128, I8), Codes(1, 130, U8), (0, 2, 1, 0), (1, 1), (1, 2), 2),
    "depthwise": (Codes(1, 3, U8), Codes(1, 255, U8), (1, 1, 1, 1), (1, 2), (1, 1), 4),
}


@pytest.mark.parametrize("at_run_time", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv_integer(case, at_run_time):
    """A zero point that comes at run time is taken out of the sums on the CPU."""
    data, weights, pads, strides, dilations, groups = CONVOLUTIONS[case]
    x, w = awkward((2, 4, 9, 7), data), awkward((4, 4 // groups, 3, 3), weights, 1)
    held = {"w": w, "wz": weights.zero_point, **({} if at_run_time else {"xz": data.zero_point})}
    feeds = {"x": x, **({"xz": data.zero_point} if at_run_time else {})}
    attributes = {"pads": pads, "strides": strides, "dilations": dilations, "group": groups}
    nodes = [node("ConvInteger", ["x", "w", "xz", "wz"], "y", "n", **attributes)]
    outcome = outcome_of(nodes, feeds, ["y"], held, {"y": TensorProto.INT32})
    assert not left_behind(outcome) & {"nn.conv2d"}
    assert at_run_time or not left_behind(outcome)
    wanted = convolve(data.centred(x), weights.centred(w), strides, pads, dilations, groups)
    np.testing.assert_array_equal(outcome.outputs["y"], wanted)


def test_conv_integer_without_zero_points_and_with_one_a_filter():
    data, weights = Codes(1, 0, U8), awkward((3, 2, 2, 3), Codes(1, 0, I8), 1)
    x, zeros = awkward((1, 2, 5, 6), data), np.array([-128, 0, 127], I8)
    for inputs, offset in ((["x", "w"], 0), (["x", "w", "xz", "wz"], zeros.reshape(-1, 1, 1, 1).astype(np.int64))):
        nodes = [node("ConvInteger", inputs, "y", "n")]
        held = {"w": weights, "xz": np.array(0, U8), "wz": zeros}
        outcome = outcome_of(nodes, {"x": x}, ["y"], held, {"y": TensorProto.INT32})
        assert not left_behind(outcome)
        wanted = convolve(data.centred(x), weights.astype(np.int64) - offset, (1, 1), (0, 0, 0, 0))
        np.testing.assert_array_equal(outcome.outputs["y"], wanted)


def dynamic_codes(x):
    """DynamicQuantizeLinear in float32, operation by operation as its definition has them."""
    low, high = min(F32(0), x.min()), max(F32(0), x.max())
    span = F32(high - low)
    scale = F32(span / F32(255)) if span else F32(1)
    zero = int(np.rint(np.clip(F32(0) - F32(low / scale), 0, 255)))
    codes = np.clip(np.rint(x / scale) + zero, 0, 255).astype(U8)
    return codes, scale, zero


@pytest.mark.parametrize("factor", [1.0, -1.0, 0.0])
def test_dynamic_quantize(factor):
    x = np.abs(np.random.default_rng(2).standard_normal((3, 7)).astype(F32)) * F32(factor)
    x[0, 0] *= 9
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "n")]
    kinds = {"q": TensorProto.UINT8, "z": TensorProto.UINT8}
    outputs = outcome_of(nodes, {"x": x}, ["q", "s", "z"], {}, kinds).outputs
    codes, scale, zero = dynamic_codes(x)
    np.testing.assert_array_equal(outputs["q"], codes)
    assert outputs["s"] == scale and outputs["z"] == zero


@pytest.mark.parametrize("biased", [False, True])
def test_dynamic_matmul(biased):
    """The integers are exact; what scales them rounds in float32."""
    rng = np.random.default_rng(5)
    x, weights = rng.standard_normal((2, 3, 5)).astype(F32), Codes(rng.uniform(0.001, 0.02, 4).astype(F32), -128, I8)
    x[..., 1] *= 30
    w, bias = awkward((5, 4), weights, 1), rng.standard_normal(4).astype(F32)
    inputs = ["x", "w", "ws", "wz", *(["b"] if biased else [])]
    nodes = [helper.make_node("DynamicQuantizeMatMul", inputs, ["y"], name="n", domain=MS)]
    held = {"w": w, "ws": weights.scale, "wz": weights.zero_point, "b": bias}
    outcome = outcome_of(nodes, {"x": x}, ["y"], held, domain=MS)
    assert "matmul" not in left_behind(outcome)
    codes, scale, zero = dynamic_codes(x)
    wanted = ((codes.astype(np.int64) - zero) @ weights.centred(w)) * (float(scale) * weights.factor)
    np.testing.assert_allclose(outcome.outputs["y"], wanted + (bias if biased else 0), rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("at_run_time", [False, True])
def test_matmul_to_float(at_run_time):
    rng = np.random.default_rng(6)
    data, weights = Codes(0.021, 255, U8), Codes(rng.uniform(0.001, 0.02, 4).astype(F32), 0, I8)
    x, w, bias = awkward((3, 5), data), awkward((5, 4), weights, 1), rng.standard_normal(4).astype(F32)
    inputs = ["x", "w", "xs", "ws", "xz", "wz", "b"]
    nodes = [helper.make_node("MatMulIntegerToFloat", inputs, ["y"], name="n", domain=MS)]
    scale = {"xs": np.asarray(data.scale, F32)}
    held = {"w": w, "ws": weights.scale, "xz": data.zero_point, "wz": weights.zero_point, "b": bias}
    feeds = {"x": x, **(scale if at_run_time else {})}
    outcome = outcome_of(nodes, feeds, ["y"], held if at_run_time else held | scale, domain=MS)
    assert "matmul" not in left_behind(outcome)
    wanted = (data.centred(x) @ weights.centred(w)) * (data.factor * weights.factor) + bias
    np.testing.assert_allclose(outcome.outputs["y"], wanted, rtol=1e-6, atol=1e-6)


def test_matmul_to_float_that_is_quantized_next_is_one_integer_product():
    data, weights, result = Codes(0.021, 255, U8), Codes(0.0114, 0, I8), Codes(0.43, 7, U8)
    x, w = awkward((3, 5), data), awkward((5, 4), weights, 1)
    nodes = [
        helper.make_node("MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz"], ["r"], name="n", domain=MS),
        node("QuantizeLinear", ["r", "ys", "yz"], "y", "q"),
    ]
    held = {"w": w, "ws": F32(weights.scale), "xs": F32(data.scale), "xz": data.zero_point}
    held |= {"ys": F32(result.scale), "yz": result.zero_point}
    outcome = outcome_of(nodes, {"x": x}, ["y"], held, {"y": TensorProto.UINT8}, domain=MS)
    assert not left_behind(outcome)
    wanted = result.of_terms((data.centred(x) @ weights.centred(w), data.factor * weights.factor))
    np.testing.assert_array_equal(outcome.outputs["y"], wanted)


def attention_in_float64(x, w, bias, heads, mask):
    batch, count, _ = x.shape
    hidden = w.shape[1] // 3
    query, key, value = (
        part.reshape(batch, count, heads, -1).transpose(0, 2, 1, 3) for part in np.split(x @ w + bias, 3, axis=-1)
    )
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(hidden // heads)
    scores = scores + (0 if mask is None else (1 - mask[:, None, None, :]) * -10000.0)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True) @ value).transpose(0, 2, 1, 3).reshape(batch, count, hidden)


@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked):
    rng = np.random.default_rng(8)
    data, weights = Codes(0.021, 120, U8), Codes(0.004, 0, I8)
    x, w = awkward((2, 5, 6), data, channel_axis=None), awkward((6, 12), weights, 1)
    bias = rng.standard_normal(12).astype(F32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    inputs = ["x", "w", "b", "xs", "ws", "m" if masked else "", "xz", "wz"]
    nodes = [helper.make_node("QAttention", inputs, ["y"], name="n", domain=MS, num_heads=2)]
    held = {"w": w, "ws": F32(weights.scale), "wz": weights.zero_point, "b": bias}
    held |= {"xs": F32(data.scale), "xz": data.zero_point}
    feeds = {"x": x, **({"m": mask} if masked else {})}
    got = outcome_of(nodes, feeds, ["y"], held, domain=MS).outputs["y"]
    wanted = attention_in_float64(data.real(x), weights.real(w), bias, 2, mask if masked else None)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
