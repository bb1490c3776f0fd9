"""Quantized activations against dequantize -> function -> quantize in float64, over all input codes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.relay_patterns.composites.infra import all_codes, build, code_distance, run
from torq_byoc.errors import QuantizationError, UnsupportedOpError
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.relay_patterns.composites import activation, integer_activation
from torq_byoc.relay_patterns.composites.emitter import Emitter
from torq_byoc.relay_patterns.quant_params import QuantParams

INT8, UINT8, INT16 = DType.INT8, DType.UINT8, DType.INT16

SCALAR = {
    "elu": lambda x, alpha=1.0: x if x > 0 else alpha * math.expm1(x),
    "erf": math.erf,
    "exp": math.exp,
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "hardsigmoid": lambda x, alpha=0.2, beta=0.5: min(max(alpha * x + beta, 0), 1),
    "hardswish": lambda x: x * min(max(x / 6 + 0.5, 0), 1),
    "leaky_relu": lambda x, alpha=0.01: x if x >= 0 else alpha * x,
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "abs": abs,
    "neg": lambda x: -x,
    "clip": lambda x, low, high: min(max(x, low), high),
}
ATTRIBUTES = {"clip": {"low": -1.0, "high": 3.3}, "leaky_relu": {"alpha": 0.17}, "elu": {"alpha": 0.6}}
SOURCES = [
    QuantParams(0.0471, -128, INT8),
    QuantParams(0.0313, 127, INT8),
    QuantParams(0.11, 11, INT8),
    QuantParams(0.031, 255, UINT8),
    QuantParams(0.05, 0, UINT8),
]
TARGETS = [QuantParams(0.0131, -5, INT8), QuantParams(1 / 256, 0, UINT8), QuantParams(2.0**-11, 77, INT16)]


def expected(name: str, codes: np.ndarray, source: QuantParams, out: QuantParams) -> np.ndarray:
    attributes = ATTRIBUTES.get(name, {})
    real = [SCALAR[name](float(x), **attributes) for x in source.dequantize(codes)]
    return out.quantize(np.array(real))


def lowering(name: str, out: QuantParams):
    return lambda builder, x: activation.lower(builder, x, name, out, "node", **ATTRIBUTES.get(name, {}))


@pytest.mark.parametrize("name", sorted(SCALAR))
def test_eight_bit_inputs_are_exact(name: str):
    for source in SOURCES:
        codes = all_codes(source.dtype)
        for out in TARGETS:
            actual = run([codes], [source], lowering(name, out))
            assert code_distance(actual, expected(name, codes, source, out)) == 0, (source, out)


def test_unit_rescale_ties_round_to_even():
    source, out = QuantParams(0.5, 3, INT8), QuantParams(1.0, -7, INT8)
    codes = all_codes(INT8)
    for name in ("relu", "clip", "abs", "neg"):
        actual = run([codes], [source], lowering(name, out))
        assert code_distance(actual, expected(name, codes, source, out)) == 0


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu", "silu", "mish", "erf", "elu", "softplus"])
def test_sixteen_bit_inputs_are_within_one_code(name: str):
    source = QuantParams(3e-4, -1280, INT16)
    codes = all_codes(INT16)[::7]
    for out in (QuantParams(0.041, -5, INT8), QuantParams(0.02, 128, UINT8), QuantParams(2.0**-12, 100, INT16)):
        actual = run([codes], [source], lowering(name, out))
        assert code_distance(actual, expected(name, codes, source, out)) <= 1


@pytest.mark.parametrize(("name", "reach", "steps"), [("tanh", 16, 2), ("tanh", 40, 3), ("erf", 40, 1), ("exp", 40, 3)])
def test_the_pieces_of_sixteen_bits_go_where_the_result_changes(name: str, reach: float, steps: int):
    """In pieces of equal length over all codes these miss by 7, 38, 48 and 49 steps."""
    source = QuantParams(reach / 32768, 0, INT16)
    real = np.array([SCALAR[name](float(x)) for x in source.dequantize(all_codes(INT16))])
    out = QuantParams(float(np.percentile(np.abs(real), 99.9)) / 32767, 0, INT16)
    actual = run([all_codes(INT16)], [source], lowering(name, out))
    assert code_distance(actual, out.quantize(real)) <= steps


@pytest.mark.parametrize("zero_point", [-32768, -20000, 0, 20000, 32767])
@pytest.mark.parametrize("high", [0.01, 0.5, 40.0])
def test_sixteen_bits_are_constant_where_the_function_is(zero_point: int, high: float):
    """A clip far inside the range, at either end of it, and one that does nothing."""
    source, out = QuantParams(1e-3, zero_point, INT16), QuantParams(high / 30000, 9, INT16)
    codes = all_codes(INT16)
    function = np.vectorize(lambda x: min(max(math.tanh(x), -high / 2), high / 3))
    actual = run([codes], [source], lambda b, x: integer_activation.lower(Emitter(b, "n"), x, function, out))
    wanted = out.quantize(function(source.dequantize(codes)))
    flat = (wanted == wanted.min()) | (wanted == wanted.max())
    assert code_distance(actual, wanted) <= 1
    assert high > 1 or code_distance(actual[flat], wanted[flat]) == 0


def test_poles_saturate_and_holes_give_zero():
    source, out = QuantParams(0.1, 0, INT8), QuantParams(0.1, 4, INT8)
    actual = run([all_codes(INT8)], [source], lambda b, x: activation.lower(b, x, "log", out, "node"))
    assert actual[128] == -128  # log 0
    assert np.all(actual[:128] == 4)  # log of negatives


def test_one_node_a_table():
    graph = build([(2, 3)], [SOURCES[0]], lowering("sigmoid", TARGETS[0]))
    assert [node.op for node in graph.nodes] == ["table"]
    graph = build([(2, 3)], [SOURCES[0]], lowering("relu", TARGETS[0]))
    assert [node.op for node in graph.nodes] == ["act"]


def test_errors_name_the_node():
    builder = GraphBuilder("test")
    plain = builder.input("plain", (4,), INT8)
    wide = builder.input("wide", (4,), DType.INT32, 0.1)
    with pytest.raises(QuantizationError, match="Sigmoid_7"):
        activation.lower(builder, plain, "sigmoid", TARGETS[0], "Sigmoid_7")
    with pytest.raises(UnsupportedOpError, match="Sigmoid_8"):
        activation.lower(builder, wide, "sigmoid", TARGETS[0], "Sigmoid_8")
    with pytest.raises(UnsupportedOpError, match="no_such"):
        activation.lower(builder, wide, "no_such", TARGETS[0], "x")


def test_a_step_within_one_straight_piece_is_refused():
    builder = GraphBuilder("test")
    fine = builder.input("fine", (4,), INT16, 2.0**-15)
    with pytest.raises(QuantizationError, match="too steep") as caught:
        activation.lower(builder, fine, "reciprocal", QuantParams(1.0, 0, INT16), "Reciprocal_9")
    assert caught.value.where == "Reciprocal_9"


def test_a_step_between_constants_is_none_too_steep():
    source, out = QuantParams(10.0, 0, INT16), QuantParams(2.0**-15, 0, INT16)
    actual = run([all_codes(INT16)], [source], lowering("tanh", out))
    assert code_distance(actual, expected("tanh", all_codes(INT16), source, out)) == 0
