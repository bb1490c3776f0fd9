"""Six small float models, each hard to quantize for one reason that occurs in practice, built from a seed.

Weights are normally distributed with the standard deviation 1 / sqrt(inputs of a sum), unless said otherwise, and
biases with 0.1.  Calibration and evaluation data come from one distribution and never share a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
INPUT, OUTPUT = "x", "y"


@dataclass(frozen=True, eq=False)
class StressSet:
    """One draw of a hard case.

    Attributes:
        name: "M1" to "M6".
        trouble: what makes it hard.
        model: float ONNX.
        draw: one sample of its input, from a generator.
    """

    name: str
    trouble: str
    model: onnx.ModelProto
    draw: Callable[[np.random.Generator], np.ndarray]

    def data(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """``count`` samples, stacked along the first axis."""
        generator = np.random.default_rng(seed)
        return {INPUT: np.concatenate([self.draw(generator) for _ in range(count)]).astype(np.float32)}


def detector_head(seed: int) -> StressSet:
    """M1: boxes in pixels beside class scores near 0.02 in one output."""
    net = _Builder(seed)
    features = net.silu(net.conv(INPUT, 3, 16, 3, stride=2))
    features = net.silu(net.conv(features, 16, 32, 3, stride=2))
    box = net.op("Mul", net.op("Sigmoid", net.conv(features, 32, 4, 1)), net.constant(np.float32(640.0)))
    scores = net.op("Sigmoid", net.conv(features, 32, 80, 1, bias=np.full(80, -4.0)))
    joined = net.op("Concat", box, scores, axis=1)
    net.op("Reshape", joined, net.constant(np.array([1, 84, -1])))
    shape = (1, 3, 64, 64)
    return StressSet("M1", "detector head", net.model(shape), lambda g: g.uniform(0.0, 1.0, shape))


def depthwise_spread(seed: int) -> StressSet:
    """M2: channels of a depthwise convolution whose gains differ by a factor of 3000."""
    net = _Builder(seed)
    gains = np.exp(net.generator.uniform(np.log(1e-2), np.log(30.0), 32)).reshape(-1, 1, 1, 1)
    first = net.clip6(net.conv(INPUT, 3, 32, 3, stride=2))
    spread = net.clip6(net.conv(first, 32, 32, 3, group=32, gains=gains))
    net.op("GlobalAveragePool", net.conv(spread, 32, 64, 1))
    shape = (1, 3, 64, 64)
    return StressSet("M2", "depthwise spread", net.model(shape), lambda g: g.standard_normal(shape))


def dead_channels(seed: int) -> StressSet:
    """M3: channels of nearly no weights and large biases; the others' weights are of size 0.1."""
    net = _Builder(seed)
    gains, bias = np.full((8, 1, 1, 1), 0.1 * np.sqrt(27)), net.generator.normal(0.0, 0.1, 8)
    gains[[2, 5], 0, 0, 0] *= 1e-8, 1e-9
    bias[[2, 5]] = 5.0, -4.5
    net.op("Relu", net.conv(INPUT, 3, 8, 3, gains=gains, bias=bias))
    shape = (1, 3, 64, 64)
    return StressSet("M3", "dead channels", net.model(shape), lambda g: g.standard_normal(shape))


def outlier_block(seed: int) -> StressSet:
    """M4: a transformer's feed-forward block whose layer norm enlarges two channels sixtyfold."""
    net = _Builder(seed)
    gamma, outliers = np.ones(64), [11, 45]
    gamma[outliers] = 60.0
    inner = net.weights((64, 256), 64)
    inner[outliers] /= 60.0
    normal = net.op("LayerNormalization", INPUT, net.constant(gamma), net.constant(np.zeros(64)), axis=-1)
    hidden = net.gelu(net.op("Add", net.op("MatMul", normal, net.constant(inner)), net.constant(net.small(256))))
    outer = net.op("MatMul", hidden, net.constant(net.weights((256, 64), 256)))
    net.op("Add", net.op("Add", outer, net.constant(net.small(64))), INPUT)
    shape = (1, 32, 64)
    return StressSet("M4", "outlier FFN", net.model(shape), lambda g: g.standard_normal(shape))


def residual_mismatch(seed: int) -> StressSet:
    """M5: a small correction added to channels of very unlike sizes."""
    net = _Builder(seed)
    sizes = np.exp(net.generator.standard_normal(16)).reshape(1, 16, 1, 1)
    branch = net.op("Relu", net.conv(INPUT, 16, 16, 3))
    branch = net.conv(branch, 16, 16, 3, gains=np.full((16, 1, 1, 1), 0.02))
    net.conv(net.op("Add", branch, INPUT), 16, 16, 3)
    shape = (1, 16, 32, 32)
    return StressSet("M5", "residual mismatch", net.model(shape), lambda g: g.standard_normal(shape) * sizes)


def heavy_tail(seed: int) -> StressSet:
    """M6: inputs a few of which are a hundred times the rest."""
    net = _Builder(seed)
    net.conv(net.op("Relu", net.conv(INPUT, 16, 32, 3)), 32, 16, 3)
    shape = (1, 16, 32, 32)
    return StressSet("M6", "heavy tail", net.model(shape), lambda g: g.standard_t(2.5, shape))


SETS = (detector_head, depthwise_spread, dead_channels, outlier_block, residual_mismatch, heavy_tail)
"""The builders in the order of the table."""


@dataclass(eq=False)
class _Builder:
    """Collects the nodes of one model; every method returns the name of its result."""

    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)

    def constant(self, value: np.ndarray) -> str:
        value = np.asarray(value)
        value = value.astype(np.float32) if value.dtype.kind == "f" else value.astype(np.int64)
        self.constants.append(numpy_helper.from_array(value, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [result], f"{op_type}_{result}", **attributes))
        return result

    def weights(self, shape: Sequence[int], inputs: int) -> np.ndarray:
        return self.generator.normal(0.0, 1.0 / np.sqrt(inputs), shape)

    def small(self, count: int) -> np.ndarray:
        return self.generator.normal(0.0, 0.1, count)

    def conv(
        self,
        source: str,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        group: int = 1,
        gains: np.ndarray | float = 1.0,
        bias: np.ndarray | None = None,
    ) -> str:
        """A convolution with "same" padding; ``gains`` multiply its weights."""
        taken = inputs // group
        drawn = self.weights((outputs, taken, kernel, kernel), taken * kernel * kernel) * gains
        offsets = self.small(outputs) if bias is None else bias
        return self.op(
            "Conv",
            source,
            self.constant(drawn),
            self.constant(offsets),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=group,
        )

    def silu(self, source: str) -> str:
        return self.op("Mul", source, self.op("Sigmoid", source))

    def clip6(self, source: str) -> str:
        return self.op("Clip", source, self.constant(np.float32(0.0)), self.constant(np.float32(6.0)))

    def gelu(self, source: str) -> str:
        """x / 2 (1 + erf(x / sqrt 2)) in the form that exporters write."""
        scaled = self.op("Mul", source, self.constant(np.float32(np.sqrt(0.5))))
        shifted = self.op("Add", self.op("Erf", scaled), self.constant(np.float32(1.0)))
        return self.op("Mul", self.op("Mul", source, shifted), self.constant(np.float32(0.5)))

    def model(self, shape: Sequence[int]) -> onnx.ModelProto:
        """The model whose output is the result of the operator added last."""
        self.nodes[-1].output[0] = OUTPUT
        graph = helper.make_graph(
            self.nodes,
            "stress",
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, list(shape))],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, None)],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)
