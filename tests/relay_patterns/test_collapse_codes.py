"""Chains of element-wise operators over one 8-bit tensor: replaced by what is cheaper and gives the same codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Rounding
from torq_byoc.relay_patterns.collapse_codes import collapse_codes
from torq_byoc.relay_patterns.composites import tables

CONFIG = NpuConfig()
SHAPE = (1, 2, 8, 16)
EVERY_CODE = np.arange(-128, 128, dtype=np.int8).reshape(SHAPE)
SCALE = 0.0371

Chain = Callable[[GraphBuilder, str], str]


def step(factor: float, bias: int = 0, zero_point: int = 0, low: float = -128, high: float = 127) -> Rescale:
    scale = np.array([round(factor * (1 << 24))], np.int32)
    return Rescale(np.array([bias], np.int32), scale, 24, zero_point, low, high, rounding=Rounding.NTE, sum_bits=48)


def act(b: GraphBuilder, x: str, dtype: DType = DType.INT8, **how: float) -> str:
    return b.emit("act", [x], b.info(x).shape, dtype, rescale=step(**how), hint="act")


def mul(b: GraphBuilder, x: str, y: str, factor: float, dtype: DType = DType.INT8, zero: int = 0) -> str:
    attrs = {"zero_point": zero} if zero else {}
    return b.emit("mul", [x, y], b.info(x).shape, dtype, attrs=attrs, rescale=step(factor), hint="mul")


def look_up(b: GraphBuilder, x: str, function: Callable[[np.ndarray], np.ndarray]) -> str:
    results = np.clip(np.rint(function(np.arange(-128, 128))), -128, 127)
    attrs = {"table": tables.exact_table(results)}
    return b.emit(
        "table", [x], b.info(x).shape, DType.INT8, attrs=attrs, rescale=tables.exact_index(-128), hint="table"
    )


def tanh_gelu(b: GraphBuilder, x: str) -> str:
    """x * (tanh(c * (x + k * x^3)) + 1) / 2 with every operator rounded by itself."""
    wide = act(b, x, DType.INT16, factor=1.0, bias=-9, low=-32768, high=32767)
    square = mul(b, x, wide, 0.0104, DType.UINT8, zero=9)
    cube = mul(b, x, square, 0.0061, zero=9)
    inner = b.emit("sum2", [x, cube], b.info(x).shape, DType.INT8, attrs={"weights": (8473, 332)}, rescale=step(9e-5))
    gate = act(
        b, look_up(b, inner, lambda c: 120 * np.tanh(c / 40)), DType.UINT8, factor=1.0, bias=128, low=0, high=255
    )
    return mul(b, x, gate, 0.0041, zero=9)


def graph_of(chain: Chain, *, ends: bool = True, source: DType = DType.INT8) -> OpGraph:
    builder = GraphBuilder("chain")
    x = builder.input("x", SHAPE, source, SCALE, 9)
    made = chain(builder, x)
    pool = {"kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "pad_value": 0}
    dtype = builder.info(made).dtype
    builder.output(builder.emit("maxpool", [made], SHAPE, dtype, attrs=pool, hint="end") if ends else made)
    return builder.finish()


def check(chain: Chain, *, ends: bool = True) -> list[str]:
    """Operators after the pass, whose results for every code are as before."""
    graph = graph_of(chain, ends=ends)
    after = collapse_codes(graph, CONFIG)
    assert set(after.outputs) <= set(after.tensors)
    assert {name for node in after.nodes for name in (*node.inputs, node.output)} <= set(after.tensors)
    want, got = evaluate(graph, {"x": EVERY_CODE}), evaluate(after, {"x": EVERY_CODE})
    for name in graph.outputs:
        np.testing.assert_array_equal(got[name], want[name])
    return [node.op for node in after.nodes if node.op != "maxpool"]


@pytest.mark.parametrize("ends", [False, True])
def test_a_function_written_out_becomes_one_table(ends):
    assert check(tanh_gelu, ends=ends) == ["table"]


def test_two_passes_become_one():
    assert check(lambda b, x: act(b, act(b, x, factor=1.0, bias=-9, low=0), factor=1.0, zero_point=-50)) == ["act"]


def test_a_table_that_is_a_line_becomes_a_pass():
    assert check(lambda b, x: look_up(b, x, lambda c: np.clip(0.71 * c + 3.13, -20, 90))) == ["act"]


def test_a_table_of_a_gated_function_becomes_a_product():
    def swish(c: np.ndarray) -> np.ndarray:
        return (c - 9) * np.clip(0.013 * (c - 9) + 0.5, 0, 1) * 0.83

    assert check(lambda b, x: look_up(b, x, swish)) == ["act", "mul"]


def test_two_roundings_of_which_no_pass_gives_the_same_stay():
    assert check(lambda b, x: act(b, act(b, x, factor=0.37), factor=2.7)) == ["act", "act"]


def test_a_gate_and_a_product_stay():
    def swish(b: GraphBuilder, x: str) -> str:
        gate = act(b, x, DType.UINT8, factor=2.3, bias=40, low=0, high=210)
        return mul(b, x, gate, 0.0039, zero=9)

    assert check(swish) == ["act", "mul"]


def test_what_others_read_is_not_counted_as_saved():
    def chain(b: GraphBuilder, x: str) -> str:
        inner = look_up(b, x, lambda c: 100 * np.sin(c / 20))
        b.output(inner)
        return look_up(b, inner, lambda c: 90 * np.cos(c / 30))

    assert check(chain) == ["table", "table"]


def test_the_same_chain_without_another_reader_is_one_table():
    def chain(b: GraphBuilder, x: str) -> str:
        return look_up(b, look_up(b, x, lambda c: 100 * np.sin(c / 20)), lambda c: 90 * np.cos(c / 30))

    assert check(chain) == ["table"]


def test_values_that_differ_from_place_to_place_end_a_chain():
    def chain(b: GraphBuilder, x: str) -> str:
        channels = b.constant(np.array([3, 5], np.int8).reshape(1, 2, 1, 1))
        scaled = b.emit("mul", [x, channels], SHAPE, DType.INT8, rescale=step(0.2), hint="scaled")
        return act(b, act(b, scaled, factor=1.0, low=0), factor=1.0, bias=3, high=60)

    assert check(chain) == ["mul", "act"]


def test_sixteen_bits_are_no_codes():
    graph = graph_of(lambda b, x: act(b, act(b, x, factor=0.5), factor=0.5), source=DType.INT16)
    assert [node.op for node in collapse_codes(graph, CONFIG).nodes] == ["act", "act", "maxpool"]


def test_a_cheap_table_unit_keeps_its_table():
    fast = NpuConfig(name="what-if", table_lanes=16)
    graph = graph_of(lambda b, x: look_up(b, x, lambda c: (c - 9) * np.clip(0.013 * (c - 9) + 0.5, 0, 1) * 0.83))
    assert [node.op for node in collapse_codes(graph, fast).nodes] == ["table", "maxpool"]
