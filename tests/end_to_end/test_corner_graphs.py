"""Small graphs with one unusual trait each, whole through the compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import torq_byoc
from tests.end_to_end.harness import compile_and_compare
from tests.relay_patterns.infra import Model, onnxruntime_outputs, random_feeds
from torq_byoc.npu_model.config import NpuConfig


def _check(m: Model, max_lsb: int = 0) -> torq_byoc.CompiledModel:
    model = m.proto()
    feeds = random_feeds(model, 3)
    outcome = compile_and_compare(model, feeds, NpuConfig())
    for ours, theirs in zip(outcome.outputs.values(), onnxruntime_outputs(model, feeds), strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= max_lsb
    return outcome.compiled


def test_vectors() -> None:
    m = Model()
    y = m.op("Mul", m.qinput((37,), 0.02, 5), m.qinput((37,), 0.03, -7))
    m.output(m.quantize(y, 0.04, 1), "int8")
    _check(m, 1)


def test_result_that_is_one_code() -> None:
    """Every value saturates: the scheduled loops read nothing, the kernel still does."""
    m = Model()
    y = m.op("Min", m.const(np.float32([[-1.0]])), m.qinput((2, 40), 0.005, -5))
    m.output(m.quantize(y, 0.004, 127), "int8")
    _check(m)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_shape_that_onnx_infers_otherwise(kind: str) -> None:
    """Rounding up: onnx counts a last window that would start in the padding, runtimes leave it out."""
    m = Model()
    y = m.op(kind, m.qinput((2, 3, 2, 5), 0.05), kernel_shape=[2, 1], strides=[2, 3], pads=[0, 0, 1, 0], ceil_mode=1)
    m.output(m.quantize(y, 0.05), "int8")
    _check(m, 1)


def test_zero_points_of_host_operators_survive_storage(tmp_path: Path) -> None:
    """The host keeps an operator that has no NPU form; its uint8 zero points are constants of the stored module."""
    m = Model()
    y = m.requantized(
        m.op("Conv", m.qinput((1, 4, 8, 8), 0.05, 200, "uint8"), m.qconst(_weights(), 0.02)), 0.2, 17, "uint8"
    )
    m.output(m.quantize(m.op("CumSum", y, m.const(np.array(3))), 0.5, 131, "uint8"), "uint8")
    compiled = _check(m, 1)
    assert compiled.facts.cpu_ops
    compiled.save(tmp_path / "model.torq")
    feeds = random_feeds(m.proto(), 3)
    again = torq_byoc.load(tmp_path / "model.torq").run(feeds)
    for name, value in compiled.run(feeds).items():
        assert np.array_equal(again[name], value)


def _weights() -> np.ndarray:
    return np.random.default_rng(0).integers(-127, 128, (5, 4, 3, 3)).astype(np.int8)


def test_partition_result_that_is_a_view_of_its_input() -> None:
    """A reshape that the CPU reads as well: the partition's result must not share the parameter's memory."""
    m = Model()
    x = m.input((6, 10), "int8")
    view = m.quantize(m.op("Reshape", m.dequantize(x, 0.1, 3, "int8"), m.const(np.array([1, 60]))), 0.1, 3)
    table = m.requantized(m.op("Sigmoid", m.dequantize(view, 0.1, 3, "int8")), 1 / 256, -128)
    summed = m.op("CumSum", m.op("Add", m.dequantize(view, 0.1, 3, "int8"), table), m.const(np.array(1)))
    m.output(m.quantize(summed, 2.0), "int8")
    _check(m, 1)
