"""Ranges narrower than what was seen are taken where the outputs gain, and only there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantization_of, quantize_model
from torq_byoc.quantize.calibrate import calibrate
from torq_byoc.quantize.choose_ranges import AUTO, SAFE, choose_ranges
from torq_byoc.quantize.evaluation.distance import sqnr
from torq_byoc.quantize.evaluation.evaluator import Evaluator
from torq_byoc.quantize.evaluation.float64 import Float64Evaluator
from torq_byoc.quantize.observers import Range

SHAPE = (16, 32, 32)


def heavy_tail(seed: int = 1) -> onnx.ModelProto:
    """Two convolutions of He-normal weights around a relu."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (32, 16, 3, 3), "w2": (16, 32, 3, 3)}
    weights = {name: rng.standard_normal(s) * np.sqrt(2 / np.prod(s[1:])) for name, s in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *SHAPE]) for name in "xy")
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "heavy tail", [x], [y], constants)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))


def samples(count: int, seed: int = 8) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_t(2.5, (count, *SHAPE)).astype(np.float32)}


def output_sqnr(model: onnx.ModelProto, quantized: onnx.ModelProto, data: np.ndarray) -> float:
    """SQNR of the only output over all samples together."""
    runs = [{"x": sample[None]} for sample in data]
    wanted = np.stack([Evaluator(model).outputs(feed)["y"] for feed in runs])
    return sqnr(wanted, np.stack([Float64Evaluator(quantized).outputs(feed)["y"] for feed in runs]))


@pytest.mark.parametrize("seed", [1, 2])
def test_heavy_tails_are_cut_for_two_decibels_on_fresh_data(seed: int) -> None:
    model, fresh = heavy_tail(seed), samples(8, 99 + seed)["x"]
    found = quantization_of(model, samples(16, 7 + seed))
    extremes = quantize_model(model, samples(16, 7 + seed), method="minmax")
    assert set(found.choice.methods.values()) == {"mse"}
    assert output_sqnr(model, found.model, fresh) >= output_sqnr(model, extremes, fresh) + 2.0
    (remark,) = (text for text in found.remarks() if "gain" in text)
    assert remark.startswith("ranges of 3 by mse, of 3 tensors: on held-out samples the outputs gain")


def test_values_without_a_tail_keep_their_extremes() -> None:
    data = {"x": np.random.default_rng(0).uniform(-1, 1, (16, *SHAPE)).astype(np.float32)}
    found = quantization_of(heavy_tail(), data)
    assert found.choice.methods["x"] == SAFE


@pytest.mark.parametrize("count", [1, 3])
def test_few_samples_decide_nothing(count: int) -> None:
    found = quantization_of(heavy_tail(), samples(count))
    assert set(found.choice.methods.values()) == {SAFE}
    assert list(found.table.tensors["x"].methods) == [SAFE]
    assert any("none are held out" in text for text in found.remarks())


def test_16_bits_are_not_cut() -> None:
    found = quantization_of(heavy_tail(), samples(8), precision="int16")
    assert set(found.choice.methods.values()) == {SAFE}
    assert found.method == AUTO


def test_held_out_samples_overrule_the_others() -> None:
    """Samples with a narrow bulk call for a narrow range; the held-out ones are full of what that cuts off."""
    data = np.random.default_rng(0).normal(0, 0.05, (8, *SHAPE)).astype(np.float32)
    data[:6, 0, 0, 0] = 3.0
    data[6:] *= 60.0
    model = heavy_tail()
    feeds = [{"x": sample[None]} for sample in data]
    table = calibrate(model, feeds, ["x", "b", "y"], (SAFE, "mse", "percentile"))
    exact = table.ranges(SAFE)["x"]
    tried: list[float] = []

    def parameters_for(ranges: Mapping[str, Range]) -> dict[str, np.ndarray]:
        """A range of x that is a tenth of what it should be, unless it is the extremes."""
        part = 1.0 if ranges["x"] == exact else 0.1
        tried.append(part)
        return {"scale": np.array(part * exact.width / 255, np.float32), "zero": np.array(0, np.int8)}

    choice = choose_ranges(model, feeds, table, _quantized_input(model), parameters_for)
    assert set(choice.methods.values()) == {SAFE}
    assert choice.gain == 0.0
    assert tried[:2] == [1.0, 0.1]  # the first trials, ...
    assert 1.0 in tried[2:]  # ... won by the narrow range, and the comparison on held-out samples


def _quantized_input(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its input quantized, by the constants ``scale`` and ``zero``."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    first, *rest = result.graph.node
    first.input[0] = "x_"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["x_"]),
        first,
        *rest,
    ]
    constants = [numpy_helper.from_array(np.float32(1.0), "scale"), numpy_helper.from_array(np.int8(0), "zero")]
    initializers = [*result.graph.initializer, *constants]
    graph = helper.make_graph(nodes, "g", result.graph.input, result.graph.output, initializers)
    result.graph.CopyFrom(graph)
    return result
