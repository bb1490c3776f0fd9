"""What the quantizer writes: standard ONNX, read back the same program, in onnxruntime within one code of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import torq_byoc
from tests.frontend.onnx_tools import graph_model, node, run_reference
from torq_byoc.frontend import prepare
from torq_byoc.quantize import quantize_model

F32 = np.float32


@dataclass(frozen=True)
class Net:
    """Nodes, constants and the shape of the input "x"; the result is "y"."""

    nodes: list[onnx.NodeProto]
    constants: dict[str, np.ndarray]
    shape: tuple[int, ...]

    def model(self) -> onnx.ModelProto:
        return graph_model(self.nodes, {"x": self.shape}, ["y"], self.constants, opset=17)

    def samples(self, count: int, seed: int) -> np.ndarray:
        """Inputs with an outlier channel."""
        values = np.random.default_rng(seed).standard_normal((count * self.shape[0], *self.shape[1:])).astype(F32)
        values[:, 0] *= 6
        return values


def drawn(seed=0, **shapes):
    rng = np.random.default_rng(seed)
    return {name: (rng.standard_normal(shape) * 0.3).astype(F32) for name, shape in shapes.items()}


def residual() -> Net:
    nodes = [
        node("Conv", ["x", "w1", "b1"], "a", "conv1", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], "b", "relu1"),
        node("Conv", ["b", "w2"], "c", "depthwise", pads=[0, 1, 2, 1], group=6),
        node("Conv", ["c", "w3", "b3"], "d", "conv3"),
        node("Add", ["d", "b"], "e", "residual"),
        node("GlobalAveragePool", ["e"], "f", "mean"),
        node("Flatten", ["f"], "g", "flatten"),
        node("Gemm", ["g", "w4", "b4"], "y", "dense", transB=1),
    ]
    return Net(
        nodes, drawn(w1=(6, 3, 3, 3), b1=6, w2=(6, 1, 3, 3), w3=(6, 6, 1, 1), b3=6, w4=(5, 6), b4=5), (1, 3, 9, 7)
    )


def gated() -> Net:
    nodes = [
        node("Conv", ["x", "w1"], "a", "conv", strides=[2, 2]),
        node("Sigmoid", ["a"], "b", "gate"),
        node("Mul", ["a", "b"], "c", "silu"),
        node("MaxPool", ["c"], "d", "pool", kernel_shape=[2, 2]),
        node("Concat", ["d", "d2"], "e", "join", axis=1),
        node("Resize", ["e", "", "scales"], "y", "up", mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
    ]  # fmt: skip
    nodes.insert(4, node("AveragePool", ["c"], "d2", "mean", kernel_shape=[2, 2]))
    return Net(nodes, {**drawn(w1=(5, 3, 3, 3)), "scales": np.array([1, 1, 2, 2], F32)}, (1, 3, 13, 11))


def dense() -> Net:
    nodes = [
        node("MatMul", ["x", "w1"], "a", "up"),
        node("Add", ["a", "b1"], "b", "bias"),
        node("LeakyRelu", ["b"], "c", "leaky", alpha=0.2),
        node("MatMul", ["c", "w2"], "d", "down"),
        node("Sub", ["d", "x"], "e", "residual"),
        node("ReduceMean", ["e"], "y", "mean", axes=[1], keepdims=0),
    ]
    return Net(nodes, drawn(w1=(8, 16), b1=16, w2=(16, 8)), (2, 5, 8))


def transposed() -> Net:
    nodes = [
        node("ConvTranspose", ["x", "w1", "b1"], "a", "up", strides=[2, 2]),
        node("PRelu", ["a", "slope"], "b", "prelu"),
        node("Transpose", ["b"], "y", "turn", perm=[0, 2, 3, 1]),
    ]
    return Net(nodes, drawn(w1=(3, 4, 3, 3), b1=4, slope=(4, 1, 1)), (1, 3, 5, 4))


NETS: dict[str, Callable[[], Net]] = {f.__name__: f for f in (residual, gated, dense, transposed)}


@pytest.mark.parametrize("precision", ["int8", "int16"])
@pytest.mark.parametrize("name", NETS)
def test_read_back_it_is_the_same_program_and_onnxruntime_agrees(name, precision):
    net = NETS[name]()
    model, calibration = net.model(), {"x": net.samples(6, 1)}
    written = quantize_model(prepare(model), calibration, precision=precision)
    onnx.checker.check_model(written, full_check=True)
    read = onnx.load_from_string(written.SerializeToString())
    direct = torq_byoc.compile(model, precision=precision, calibration=calibration)
    again = torq_byoc.compile(read)
    assert [part.blob for part in again.partitions] == [part.blob for part in direct.partitions]
    x = net.samples(1, 2)
    ours = again.run({"x": x})["y"]
    np.testing.assert_array_equal(ours, direct.run({"x": x})["y"])
    (theirs,) = run_reference(read, {"x": x})
    assert np.abs(theirs.astype(np.float64) - ours).max() <= step(read) * 1.001
    assert len(np.unique(ours)) > 3


def step(model: onnx.ModelProto) -> float:
    """What one code of the output is worth."""
    last = next(n for n in model.graph.node if model.graph.output[0].name in n.output)
    return float(next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == last.input[1]))
