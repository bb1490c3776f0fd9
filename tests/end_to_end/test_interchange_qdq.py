"""Operators between DequantizeLinear and QuantizeLinear against brute force, as the simulated program computes them.

0 LSB everywhere but for softmax and the quotient of two tensors, whose integer results no standard defines: one code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import erf

import numpy as np
import pytest
from onnx import helper

from tests.end_to_end.exact_integers import F32, Codes, awkward, convolve, window_sums
from tests.end_to_end.harness import compile_and_compare
from tests.frontend.onnx_tools import graph_model, node
from torq_byoc.npu_model.config import NpuConfig

I8, U8, I16 = np.int8, np.uint8, np.int16
RNG = np.random.default_rng(11)


@dataclass
class Tensor:
    """An operand: given to the model as codes, or stored."""

    codes: np.ndarray
    kind: Codes
    stored: bool = False
    axis: int = 1

    @property
    def centred(self) -> np.ndarray:
        return self.kind.centred(self.codes)

    @property
    def real(self) -> np.ndarray:
        return self.kind.real(self.codes, self.axis)

    @property
    def unit(self) -> float:
        return float(self.kind.factor)

    @property
    def term(self) -> tuple[np.ndarray, float]:
        return self.centred, self.unit


def run(nodes, operands, result, *, plain=None, version=17, on_npu=True):
    """Codes of the tensor "r" that ``nodes`` compute from "a", "b", ...; ``plain``: constants that stay as they are."""
    held = {"ys": F32(result.scale), "yz": np.array(result.zero, result.dtype), **(plain or {})}
    kinds = {"y": helper.np_dtype_to_tensor_dtype(np.dtype(result.dtype))}
    feeds, made = {}, []
    for name, operand in zip("abcdef", operands, strict=False):
        held |= {f"{name}s": np.asarray(operand.kind.scale, F32), f"{name}z": operand.kind.zero_point}
        if operand.stored:
            held[f"{name}q"] = operand.codes
        else:
            feeds[f"{name}q"] = operand.codes
            kinds[f"{name}q"] = helper.np_dtype_to_tensor_dtype(operand.codes.dtype)
        attributes = {"axis": operand.axis} if np.ndim(operand.kind.scale) else {}
        made.append(node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], name, f"dq_{name}", **attributes))
    made += [*nodes, node("QuantizeLinear", ["r", "ys", "yz"], "y", "q")]
    shapes = {name: value.shape for name, value in feeds.items()}
    model = graph_model(made, shapes, ["y"], held, opset=version, dtypes=kinds)
    outcome = compile_and_compare(model, feeds, NpuConfig())
    assert (not outcome.compiled.facts.cpu_ops) == on_npu, outcome.compiled.facts.cpu_ops
    return outcome.outputs["y"]


def same(got, wanted, within=0):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert np.abs(got.astype(np.int64) - wanted.astype(np.int64)).max() <= within
    assert wanted.size < 4 or len(np.unique(wanted)) > 2  # saturation everywhere would prove nothing


def tensor(shape, kind, seed=0, channel_axis=1):
    return Tensor(awkward(shape, kind, seed, channel_axis), kind)


def weights(shape, zero=0, dtype=I8, axis=0, per_channel=True, seed=1):
    scale = RNG.uniform(0.001, 0.02, shape[axis]).astype(F32) if per_channel else 0.0113
    kind = Codes(scale, zero, dtype)
    return Tensor(awkward(shape, kind, seed, None), kind, stored=True, axis=axis)


def bias(data: Tensor, weight: Tensor, count: int) -> Tensor:
    """int32, in units of the product of both scales as a float32."""
    product = (np.asarray(data.kind.scale, F32) * np.asarray(weight.kind.scale, F32)).astype(F32)
    values = RNG.integers(-20000, 20000, count).astype(np.int32)
    return Tensor(values, Codes(product, 0, np.int32), stored=True, axis=0)


# -- layers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clamp", ["", "Relu", "Clip"])
@pytest.mark.parametrize("zero", [-128, 127, 3])
def test_convolution_and_what_its_rescale_clamps(clamp, zero):
    data = tensor((1, 4, 7, 6), Codes(0.0371, zero, I8))
    weight, result = weights((5, 4, 3, 2)), Codes(0.61, -11, I8)
    offset = bias(data, weight, 5)
    pads, strides = (1, 0, 0, 2), (2, 1)
    nodes = [node("Conv", ["a", "b", "c"], "r" if not clamp else "s", "conv", pads=pads, strides=strides)]
    if clamp:
        nodes.append(node(clamp, ["s"] + (["lo", "hi"] if clamp == "Clip" else []), "r", "clamp"))
    got = run(nodes, [data, weight, offset], result, plain={"lo": F32(-3.0), "hi": F32(6.0)})
    sums = convolve(data.centred, weight.centred, strides, pads) + offset.codes.reshape(-1, 1, 1).astype(np.int64)
    wanted = result.of_terms((sums, (data.kind.factor * weight.kind.factor).reshape(-1, 1, 1)))
    low, high = {"": (-128, 127), "Relu": (result.codes(0), 127), "Clip": (result.codes(-3), result.codes(6))}[clamp]
    same(got, np.clip(wanted, I8(low), I8(high)))


def test_one_dimensional_convolution():
    data, weight, result = tensor((2, 3, 11), Codes(0.02, 255, U8)), weights((4, 3, 5), 128, U8), Codes(0.4, 77, U8)
    nodes = [node("Conv", ["a", "b"], "r", "conv", pads=[3, 1], strides=[2], dilations=[2])]
    got = run(nodes, [data, weight], result)
    sums = convolve(data.centred[:, :, None], weight.centred[:, :, None], (1, 2), (0, 3, 0, 1), (1, 2))[:, :, 0]
    same(got, result.of_terms((sums, (data.kind.factor * weight.kind.factor).reshape(-1, 1))))


def test_transposed_convolution():
    data, weight, result = tensor((1, 3, 4, 5), Codes(0.03, 9, I8)), weights((3, 4, 3, 2), axis=1), Codes(0.5, 5, I8)
    nodes = [node("ConvTranspose", ["a", "b"], "r", "up", strides=[2, 3], pads=[1, 0, 0, 1])]
    got = run(nodes, [data, weight], result)
    full = np.zeros((1, 4, 2 * 3 + 3, 3 * 4 + 2), np.int64)
    for i, j in np.ndindex(4, 5):
        full[:, :, 2 * i : 2 * i + 3, 3 * j : 3 * j + 2] += np.einsum(
            "nc,ckhw->nkhw", data.centred[:, :, i, j], weight.centred
        )
    sums = full[:, :, 1:, :-1]
    same(got, result.of_terms((sums, (data.kind.factor * weight.kind.factor).reshape(-1, 1, 1))))


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(turned):
    data, result = tensor((3, 7), Codes(0.02, -128, I8)), Codes(0.3, 1, I8)
    weight = weights((4, 7) if turned else (7, 4), axis=0 if turned else 1)
    offset = bias(data, weight, 4)
    got = run([node("Gemm", ["a", "b", "c"], "r", "fc", transB=turned)], [data, weight, offset], result)
    matrix = weight.centred.T if turned else weight.centred
    sums = data.centred @ matrix + offset.codes.astype(np.int64)
    same(got, result.of_terms((sums, data.kind.factor * weight.kind.factor)))


@pytest.mark.parametrize("dtype", [I8, U8, I16])
def test_matrix_product_with_constant_weights(dtype):
    zero = {I8: 127, U8: 0, I16: -321}[dtype]
    data, weight = tensor((2, 3, 9), Codes(0.0021, zero, dtype)), weights((9, 5), axis=1)
    result = Codes(0.05 if dtype != I16 else 0.01, 0, I16)
    got = run([node("MatMul", ["a", "b"], "r", "mm")], [data, weight], result, version=21)
    same(got, result.of_terms((data.centred @ weight.centred, data.kind.factor * weight.kind.factor)))


def test_matrix_product_of_two_tensors():
    left, right = tensor((2, 3, 5), Codes(0.02, 255, U8)), tensor((1, 5, 4), Codes(0.01, -128, I8), 1)
    result = Codes(0.9, 100, U8)
    got = run([node("MatMul", ["a", "b"], "r", "mm")], [left, right], result)
    same(got, result.of_terms((left.centred @ right.centred, left.unit * right.unit)))


# -- two tensors -------------------------------------------------------------------------------------------------

PAIRS = {
    "uint8 and int8": (Codes(0.017, 255, U8), Codes(0.026, -128, I8), Codes(0.0343, 128, U8)),
    "int8, scales far apart": (Codes(0.0009, 0, I8), Codes(0.026, 127, I8), Codes(0.051, -3, I8)),
    "int16": (Codes(0.00017, 0, I16), Codes(0.00026, 0, I16), Codes(0.00031, 0, I16)),
}


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize("stored", [False, True])
def test_two_tensors(op, case, stored):
    first, second, result = PAIRS[case]
    if op == "Mul":
        result = Codes(result.scale * 2, result.zero, result.dtype)
    a, b = tensor((2, 3, 4, 5), first), tensor((1, 3, 1, 5), second, 1)
    b.stored = stored
    got = run([node(op, ["a", "b"], "r", "n")], [a, b], result, version=21)
    if op in ("Max", "Min"):
        chosen = (a.real > b.real) == (op == "Max")
        terms = [(np.where(chosen, a.centred, 0), a.unit), (np.where(chosen, 0, b.centred), b.unit)]
    elif op == "Mul":
        terms = [(a.centred * b.centred, a.unit * b.unit)]
    else:
        terms = [a.term, (b.centred, b.unit if op == "Add" else -b.unit)]
    same(got, result.of_terms(*terms))


def test_quotient():
    """One code: the standard defines a float quotient, and the reciprocal here is a table."""
    a, result = tensor((2, 3, 5), Codes(0.02, 3, I8)), Codes(0.05, 1, I8)
    divisor = Codes(0.03, 0, U8)
    b = Tensor(np.clip(awkward((1, 3, 1), divisor), 5, 255).astype(U8), divisor)
    same(run([node("Div", ["a", "b"], "r", "n")], [a, b], result), result.codes(a.real / b.real), within=1)


# -- functions of one tensor: all codes -------------------------------------------------------------------------


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def hard_sigmoid(x):
    return np.clip(x * float(F32(0.17)) + float(F32(0.45)), 0, 1)


FUNCTIONS: dict[str, tuple[Callable, dict, Codes]] = {
    "Relu": (lambda x: np.maximum(x, 0), {}, Codes(0.03, -128, I8)),
    "LeakyRelu": (lambda x: np.where(x < 0, x * float(F32(0.21)), x), {"alpha": 0.21}, Codes(0.041, -9, I8)),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), {}, Codes(1 / 256, -128, I8)),
    "Tanh": (np.tanh, {}, Codes(1 / 128, 0, I8)),
    "HardSigmoid": (hard_sigmoid, {"alpha": 0.17, "beta": 0.45}, Codes(1 / 255, -128, I8)),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}, Codes(0.037, -118, I8)),
    "Abs": (np.abs, {}, Codes(0.027, 0, U8)),
    "Neg": (lambda x: -x, {}, Codes(0.061, 100, U8)),
    "Exp": (np.exp, {}, Codes(1.7, -128, I8)),
    "Erf": (np.vectorize(erf), {}, Codes(1 / 128, 0, I8)),
    "Elu": (lambda x: np.where(x < 0, float(F32(1.3)) * np.expm1(x), x), {"alpha": 1.3}, Codes(0.041, -80, I8)),
    "Softplus": (lambda x: np.logaddexp(0, x), {}, Codes(0.031, -128, I8)),
    "Gelu": (gelu, {}, Codes(0.031, -120, I8)),
    "Softsign": (lambda x: x / (1 + np.abs(x)), {}, Codes(1 / 128, 5, I8)),
}  # fmt: skip


@pytest.mark.parametrize("source", [Codes(0.047, 15, I8), Codes(0.047, 143, U8)], ids=["int8", "uint8"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_function_of_every_code(op, source):
    """The float64 value is never so near a tie that its own error could matter."""
    function, attributes, result = FUNCTIONS[op]
    limits = np.iinfo(source.dtype)
    codes = np.arange(limits.min, limits.max + 1).astype(source.dtype).reshape(1, 4, 8, 8)
    a = Tensor(codes, source)
    exact = function(a.real) / float(F32(result.scale))
    assert np.abs(np.abs(exact - np.floor(exact)) - 0.5).min() > 1e-9
    same(run([node(op, ["a"], "r", "n", **attributes)], [a], result, version=20), result.codes(function(a.real)))


def test_function_of_int16_codes():
    a, result = tensor((1, 3, 7, 5), Codes(0.0003, 0, I16)), Codes(1 / 32768, 0, I16)
    got = run([node("Tanh", ["a"], "r", "n")], [a], result, version=21)
    # Interpolated between 512 supporting points: some codes of 16 bits.
    same(got, result.codes(np.tanh(a.real)), within=4)


def test_slopes_of_channels():
    data, result = tensor((1, 4, 5, 3), Codes(0.03, -7, I8)), Codes(0.043, 21, I8)
    slope = Tensor(awkward((4, 1, 1), Codes(0.01, 0, I8), 3, None), Codes(0.01, 0, I8), stored=True)
    got = run([node("PRelu", ["a", "b"], "r", "n")], [data, slope], result)
    factors = np.where(data.centred < 0, slope.real, 1.0) * np.ones(data.codes.shape)
    same(got, result.of_terms((data.centred, data.unit * factors)))


@pytest.mark.parametrize("axis", [1, -1])
def test_softmax(axis):
    """One code: no standard defines exponentials in integers."""
    data, result = tensor((2, 7, 5), Codes(0.047, 127, I8)), Codes(1 / 256, -128, I8)
    powers = np.exp(data.real - data.real.max(axis, keepdims=True))
    got = run([node("Softmax", ["a"], "r", "n", axis=axis)], [data], result)
    same(got, result.codes(powers / powers.sum(axis, keepdims=True)), within=1)


# -- windows and reductions --------------------------------------------------------------------------------------


def test_max_pool():
    data, result = tensor((1, 3, 9, 8), Codes(0.03, 255, U8)), Codes(0.05, 200, U8)
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}
    got = run([node("MaxPool", ["a"], "r", "n", **attributes)], [data], result)
    padded = np.pad(data.centred, ((0, 0), (0, 0), (1, 0), (0, 1)), constant_values=-(10**6))
    wanted = np.stack([padded[:, :, i : i + 7 : 2, j : j + 8] for i in range(3) for j in range(2)]).max(axis=0)
    same(got, result.of_terms((wanted, data.unit)))


@pytest.mark.parametrize("counted", [0, 1])
def test_average_pool(counted):
    data, result = tensor((1, 3, 9, 8), Codes(0.03, -128, I8)), Codes(0.02, 100, U8)
    kernel, strides, pads = (3, 2), (2, 1), (1, 0, 0, 1)
    windows = {"kernel_shape": kernel, "strides": strides, "pads": pads, "count_include_pad": counted}
    nodes = [node("AveragePool", ["a"], "r", "n", **windows)]
    counts = 6 if counted else window_sums(np.ones(data.codes.shape, np.int64), kernel, strides, pads)
    sums = window_sums(data.centred, kernel, strides, pads)
    same(run(nodes, [data], result), result.of_terms((sums, data.unit), divisor=counts))


@dataclass
class Reduction:
    """Attributes or axes of an operator that reduces, and what numpy calls it."""

    attributes: dict
    axes: tuple[int, ...]
    of: Callable = field(default=np.sum)
    mean: bool = False


REDUCTIONS = {
    "GlobalAveragePool": Reduction({}, (2, 3), mean=True),
    "GlobalMaxPool": Reduction({}, (2, 3), np.max),
    "ReduceMean": Reduction({"axes": [1], "keepdims": 1}, (1,), mean=True),
    "ReduceMax": Reduction({"axes": [-1], "keepdims": 1}, (3,), np.max),
    "ReduceMin": Reduction({"axes": [2], "keepdims": 1}, (2,), np.min),
    "ReduceSum": Reduction({"keepdims": 1}, (1, 2)),
}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op):
    case = REDUCTIONS[op]
    data, result = tensor((2, 5, 7, 3), Codes(0.03, 60, I8)), Codes(0.047 if op != "ReduceSum" else 1.3, 99, I8)
    plain = {"axes": np.array(case.axes, np.int64)} if op == "ReduceSum" else {}
    nodes = [node(op, ["a", *plain], "r", "n", **case.attributes)]
    values = case.of(data.centred, axis=case.axes, keepdims=True)
    divisor = int(np.prod([data.codes.shape[axis] for axis in case.axes])) if case.mean else 1
    same(run(nodes, [data], result, plain=plain), result.of_terms((values, data.unit), divisor=divisor))


# -- movement ----------------------------------------------------------------------------------------------------


@dataclass
class Movement:
    """An operator with constant parameters ("" is one that is left out), and the same in numpy."""

    op: str
    function: Callable
    plain: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)


MOVEMENTS = [
    Movement("Transpose", lambda x: x.transpose(0, 3, 1, 2), attributes={"perm": [0, 3, 1, 2]}),
    Movement("Reshape", lambda x: x.reshape(5, -1), {"shape": np.array([5, -1])}),
    Movement(
        "Slice",
        lambda x: x[:, 1:5:2, -3:],
        {"from": np.array([1, -3]), "to": np.array([5, 99]), "axes": np.array([1, 2]), "steps": np.array([2, 1])},
    ),
    Movement("Pad", lambda x: np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 3))), {"p": np.array([0, 0, 1, 2, 0, 0, 0, 3])}),
    Movement(
        "Resize",
        lambda x: x.repeat(2, 2).repeat(3, 3),
        {"": None, "scales": np.array([1, 1, 2, 3], F32)},
        {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    ),
    Movement("Expand", lambda x: np.broadcast_to(x[None], (2, *x.shape)), {"shape": np.array([2, 1, 5, 7, 3])}),
]


@pytest.mark.parametrize("case", MOVEMENTS, ids=lambda case: case.op)
def test_movement_between_unlike_scales(case):
    """The codes move, and are rescaled once."""
    data, result = tensor((1, 5, 7, 3), Codes(0.03, 127, I8)), Codes(0.041, 60, U8)
    nodes = [node(case.op, ["a", *case.plain], "r", "n", **case.attributes)]
    held = {name: value for name, value in case.plain.items() if name}
    same(run(nodes, [data], result, plain=held), result.of_terms((case.function(data.centred), data.unit)))


def test_concatenation_of_unlike_scales():
    kinds = [Codes(0.05, 0, I8), Codes(0.013, 127, I8), Codes(0.02, -128, I8)]
    parts = [tensor((1, n, 3, 5), kind, n) for n, kind in zip((1, 4, 2), kinds, strict=True)]
    result = Codes(0.04, 10, I8)
    got = run([node("Concat", ["a", "b", "c"], "r", "n", axis=1)], parts, result)
    same(got, np.concatenate([result.of_terms(part.term) for part in parts], axis=1))


def test_two_scales_one_after_the_other():
    """A tensor that is quantized twice is rounded twice."""
    data, between, result = tensor((1, 3, 7), Codes(0.03, -128, I8)), Codes(0.07, 13, U8), Codes(0.05, 3, I8)
    plain = {"ms": F32(between.scale), "mz": np.array(between.zero, U8)}
    nodes = [
        node("QuantizeLinear", ["a", "ms", "mz"], "m", "q1"),
        node("DequantizeLinear", ["m", "ms", "mz"], "r", "d1"),
    ]
    got = run(nodes, [data], result, plain=plain)
    first = between.of_terms(data.term)
    same(got, result.of_terms((between.centred(first), float(between.factor))))


def test_one_dequantize_for_three_readers():
    data, weight, result = tensor((1, 3, 6, 5), Codes(0.03, 4, I8)), weights((3, 3, 1, 1)), Codes(0.09, -2, I8)
    inner = Codes(0.05, 11, I8)
    plain = {"cs": F32(inner.scale), "cz": np.array(inner.zero, I8)}
    nodes = [
        node("Conv", ["a", "b"], "c", "conv"),
        node("QuantizeLinear", ["c", "cs", "cz"], "cq", "qc"),
        node("DequantizeLinear", ["cq", "cs", "cz"], "cd", "dc"),
        node("Add", ["cd", "a"], "s", "add1"),
        node("QuantizeLinear", ["s", "cs", "cz"], "sq", "qs"),
        node("DequantizeLinear", ["sq", "cs", "cz"], "sd", "ds"),
        node("Mul", ["sd", "a"], "r", "mul"),
    ]
    got = run(nodes, [data, weight], result, plain=plain)
    unit = (data.kind.factor * weight.kind.factor).reshape(-1, 1, 1)
    first = inner.of_terms((convolve(data.centred, weight.centred, (1, 1), (0, 0, 0, 0)), unit))
    second = inner.of_terms((inner.centred(first), float(inner.factor)), data.term)
    same(got, result.of_terms((inner.centred(second) * data.centred, float(inner.factor) * data.unit)))
