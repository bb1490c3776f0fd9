"""bf16 activations over every bf16 number, against double-precision functions of the standard library."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import BF16, build, cosine, normal_bf16, run, ulps
from torq_byoc.errors import UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import activation


def apply(name: str, x: np.ndarray, **attributes: float) -> np.ndarray:
    return run([x], [None], lambda builder, n: activation.lower(builder, n, name, None, "node", **attributes))


def exact(function, x: np.ndarray) -> np.ndarray:
    return np.array([function(float(value)) for value in x.astype(np.float64)])


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


BOUNDED = [
    # name, function, largest error in units in the last place, magnitude below which the error is absolute
    ("sigmoid", logistic, 1.0, 2.0**-8),
    ("tanh", math.tanh, 1.0, 0.0),
    ("erf", math.erf, 1.3, 0.0),
    ("silu", lambda x: x * logistic(x), 1.7, 0.04),
    ("gelu", lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)), 1.6, 0.002),
    (
        "gelu_tanh",
        lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        1.6,
        0.002,
    ),
    ("mish", lambda x: x * math.tanh(math.log1p(math.exp(x))), 1.6, 0.04),
    ("elu", lambda x: x if x > 0 else math.expm1(x), 1.3, 2.0**-9),
    ("softplus", lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))), 1.0, 2.0**-8),
    ("softsign", lambda x: x / (1 + abs(x)), 1.7, 0.0),
    ("hardsigmoid", lambda x: min(max(0.2 * x + 0.5, 0), 1), 0.6, 2.0**-10),
    ("hardswish", lambda x: x * min(max(x / 6 + 0.5, 0), 1), 1.5, 2.0**-10),
    ("leaky_relu", lambda x: x if x >= 0 else 0.01 * x, 0.6, 0.0),
]


@pytest.mark.parametrize(("name", "function", "bound", "smallest"), BOUNDED, ids=[case[0] for case in BOUNDED])
def test_activations(name: str, function, bound: float, smallest: float):
    x = normal_bf16(2.0**-20, 80.0)
    actual, truth = apply(name, x), exact(function, x)
    assert ulps(actual, truth, max(smallest, 2.0**-126)) <= bound
    assert cosine(actual, truth) >= 0.99998


@pytest.mark.parametrize(
    ("name", "function"),
    [("rsqrt", lambda x: 1 / math.sqrt(x)), ("sqrt", math.sqrt), ("reciprocal", lambda x: 1 / x)],
)
def test_roots_and_reciprocals_are_correctly_rounded(name: str, function):
    x = normal_bf16(2.0**-100, 2.0**100)
    x = x[x.astype(np.float64) != 0] if name == "reciprocal" else x[x.astype(np.float64) > 0]
    assert ulps(apply(name, x), exact(function, x)) <= 0.5


def test_exponential_keeps_its_accuracy_over_the_whole_range():
    x = normal_bf16(2.0**-30, 87.0)
    assert ulps(apply("exp", x), exact(math.exp, x)) <= 0.6
    far = np.array([-np.inf, -1e30, -100.0, 100.0, 1e30, np.inf], BF16)
    assert apply("exp", far).astype(np.float64).tolist() == [0.0, 0.0, 0.0, np.inf, np.inf, np.inf]


def test_logarithm():
    x = normal_bf16(2.0**-126, 3e38)
    x = x[x.astype(np.float64) > 0]
    assert ulps(apply("log", x), exact(math.log, x)) <= 1.2


@pytest.mark.parametrize("exponent", [0.75, -0.75, 2.0, 3.0, 4.0, -1.0, 0.5, -0.5, 2.5, -2.0, 1.0])
def test_powers(exponent: float):
    x = normal_bf16(2.0**-12, 2.0**12)
    x = x[x.astype(np.float64) > 0]
    assert ulps(apply("pow", x, exponent=exponent), exact(lambda v: v**exponent, x)) <= 2.1


def test_even_powers_of_negative_numbers():
    x = np.array([-2.0, -0.5, 3.0], BF16)
    assert apply("pow", x, exponent=2.0).astype(float).tolist() == [4.0, 0.25, 9.0]
    assert apply("pow", x, exponent=-2.0).astype(np.float64) == pytest.approx([0.25, 4.0, 1 / 9], rel=2.0**-8)
    assert apply("pow", x, exponent=3.0).astype(float).tolist() == [-8.0, -0.125, 27.0]


@pytest.mark.parametrize("exponent", [3.0, 5.0, 7.0, -1.0, -3.0, -5.0])
def test_odd_powers_keep_the_sign(exponent: float):
    """So near zero and so far from it, too, that the sign is all that is left."""
    positive = np.random.default_rng(7).uniform(0.1, 9, 200)
    x = np.concatenate([-positive, positive]).astype(BF16)
    assert ulps(apply("pow", x, exponent=exponent), exact(lambda v: v**exponent, x)) <= 2.1
    ends = apply("pow", np.array([-1e-38, 1e-38, -1e38, 1e38]).astype(BF16), exponent=exponent).astype(np.float64)
    far = ends[:2] if exponent < 0 else ends[2:]
    assert np.sign(far).tolist() == [-1, 1] and (np.abs(far) > 1e37).all()


@pytest.mark.parametrize(("name", "function"), [("sin", math.sin), ("cos", math.cos)])
def test_sine_and_cosine(name: str, function):
    x = normal_bf16(2.0**-10, 50.0)
    actual, truth = apply(name, x), exact(function, x)
    assert np.abs(actual.astype(np.float64) - truth).max() <= 2.0**-8
    assert cosine(actual, truth) >= 0.99999


def test_simple_functions_are_exact():
    x = np.array([-3.5, -0.25, -0.0, 0.0, 1.5, 300.0, -1e30, 1e30], BF16)
    real = x.astype(np.float64)
    assert np.array_equal(apply("abs", x).astype(float), np.abs(real))
    assert np.array_equal(apply("neg", x).astype(float), -real)
    assert np.array_equal(apply("relu", x).astype(float), np.maximum(real, 0))
    assert np.array_equal(apply("floor", x).astype(float), np.floor(real))
    assert np.array_equal(apply("ceil", x).astype(float), np.ceil(real))
    assert np.array_equal(apply("sign", x).astype(float), np.sign(real))
    assert np.array_equal(apply("clip", x, low=-1.0, high=6.0).astype(float), np.clip(real, -1, 6))


def test_round_goes_to_even_over_the_whole_range():
    x = normal_bf16()
    assert np.array_equal(apply("round", x).astype(np.float64), np.rint(x.astype(np.float64)))


def test_tails_reach_their_limits():
    far = np.array([-1e30, -1000.0, -50.0, 50.0, 1000.0, 1e30], BF16)
    real = far.astype(np.float64)
    assert apply("tanh", far).astype(float).tolist() == [-1, -1, -1, 1, 1, 1]
    assert apply("erf", far).astype(float).tolist() == [-1, -1, -1, 1, 1, 1]
    for name in ("silu", "gelu", "gelu_tanh", "mish"):
        assert np.array_equal(apply(name, far).astype(float), np.maximum(real, 0))
    assert apply("elu", far, alpha=1.0).astype(float).tolist() == [-1, -1, -1, *real[3:]]
    assert np.array_equal(apply("softplus", far)[3:], far[3:])


def test_celu_and_selu_follow_their_attributes():
    x = normal_bf16(2.0**-8, 60.0)
    celu = exact(lambda v: max(v, 0) + min(0, 2.5 * math.expm1(v / 2.5)), x)
    assert ulps(apply("celu", x, alpha=2.5), celu) <= 1.5
    selu = exact(lambda v: 1.0507 * (v if v > 0 else 1.67326 * math.expm1(v)), x)
    assert ulps(apply("selu", x, alpha=1.67326, gamma=1.0507), selu) <= 1.5
    swish = exact(lambda v: v * logistic(1.7 * v), x)
    assert ulps(apply("silu", x, alpha=1.7), swish, 0.04) <= 1.8


def test_erf_takes_three_passes():
    graph = build([(1, 64)], [None], lambda b, x: activation.lower(b, x, "erf", None, "node"))
    assert [node.op for node in graph.nodes if node.op != "bitcast"] == ["act", "table", "mul"]


def test_unsupported_functions_are_refused():
    builder = GraphBuilder("test")
    x = builder.input("x", (4,), DType.BF16)
    with pytest.raises(UnsupportedOpError, match="thresholded_relu"):
        activation.lower(builder, x, "thresholded_relu", None, "node")
    with pytest.raises(UnsupportedOpError, match="alpha"):
        activation.lower(builder, x, "elu", None, "node", alpha=-1.0)
