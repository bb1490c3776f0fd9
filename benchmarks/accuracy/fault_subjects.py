"""The networks that faults are injected into: small, seeded, and between them everything that can go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper

import torq_byoc
from torq_byoc.accuracy.programs.host_steps import HostSteps
from torq_byoc.accuracy.programs.intent import Intent, layer_name
from torq_byoc.accuracy.stages import Stages, stages_of
from torq_byoc.compilation.options import Options
from torq_byoc.errors import TorqError
from torq_byoc.frontend import load_model, onnx_node_name
from torq_byoc.host_module import deserialize, with_runtime_calls
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.quantize.data import load_calibration

SEED = 11
OPSET = 17
SAMPLES = 3
DATA = Path(torq_byoc.__file__).parent / "data"
LITTLE_LRAM = 12 * 1024
"""Bytes that make tiles and pairs of buffers of networks as small as these."""


@dataclass
class _Network:
    """Nodes and weights under construction; every method returns the name of its result."""

    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def weight(self, name: str, *shape: int, gain: float = 1.0) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return self.constant(name, self.generator.standard_normal(shape) * gain / np.sqrt(fan_in))

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def conv(self, name: str, x: str, channels: tuple[int, int], kernel: int = 3, **attributes: Any) -> str:
        weight = self.weight(f"{name}.w", channels[1], channels[0] // attributes.get("group", 1), kernel, kernel)
        bias = self.constant(f"{name}.b", 0.2 * self.generator.standard_normal(channels[1]))
        pads = [kernel // 2] * 4
        return self.node("Conv", name, x, weight, bias, kernel_shape=[kernel, kernel], pads=pads, **attributes)

    def dense(self, name: str, x: str, rows: int, columns: int) -> str:
        product = self.node("MatMul", name, x, self.weight(f"{name}.w", rows, columns))
        bias = self.constant(f"{name}.b", self.generator.standard_normal(columns))
        return self.node("Add", f"{name}_bias", product, bias)

    def model(self, shape: tuple[int, ...]) -> onnx.ModelProto:
        """The model; its output is called "y"."""
        self.nodes[-1].output[0] = "y"
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None)))
        graph = helper.make_graph(self.nodes, "faults", [x], [y], self.constants)
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        )


def residual() -> onnx.ModelProto:
    """Two residual blocks, one of stride 2, and a classifier."""
    net = _Network()
    x = net.node("Relu", "relu0", net.conv("conv0", "x", (3, 16)))
    y = net.node("Relu", "relu1", net.conv("conv1", x, (16, 16)))
    x = net.node("Relu", "relu2", net.node("Add", "add1", net.conv("conv2", y, (16, 16)), x))
    y = net.node("Relu", "relu3", net.conv("conv3", x, (16, 24), strides=[2, 2]))
    short = net.conv("short", x, (16, 24), kernel=1, strides=[2, 2])
    x = net.node("Relu", "relu4", net.node("Add", "add2", net.conv("conv4", y, (24, 24)), short))
    x = net.node("Flatten", "flatten", net.node("GlobalAveragePool", "pool", x))
    net.node("Gemm", "classes", x, net.weight("classes.w", 24, 10), net.constant("classes.b", np.linspace(-1, 1, 10)))
    return net.model((1, 3, 24, 24))


def depthwise() -> onnx.ModelProto:
    """An expansion, a depthwise convolution and a projection, twice."""
    net = _Network()
    x = net.node("Clip", "clip0", net.conv("conv0", "x", (3, 16), strides=[2, 2]), *_limits(net, 0))
    x = net.node("Clip", "clip1", net.conv("deep1", x, (16, 16), group=16), *_limits(net, 1))
    x = net.conv("point1", x, (16, 24), kernel=1)
    y = net.node("Clip", "clip2", net.conv("wide2", x, (24, 48), kernel=1), *_limits(net, 2))
    y = net.node("Clip", "clip3", net.conv("deep2", y, (48, 48), group=48), *_limits(net, 3))
    x = net.node("Add", "add", net.conv("point2", y, (48, 24), kernel=1), x)
    x = net.node("MaxPool", "maxpool", x, kernel_shape=[2, 2], strides=[2, 2])
    net.node("Flatten", "flatten", net.node("GlobalAveragePool", "pool", x))
    return net.model((1, 3, 32, 32))


def _limits(net: _Network, number: int) -> tuple[str, str]:
    return net.constant(f"low{number}", np.array(0.0)), net.constant(f"high{number}", np.array(2.0))


def attention() -> onnx.ModelProto:
    """One head of attention with a residual, then two dense layers."""
    net, tokens, width = _Network(), 24, 32
    q, k, v = (net.dense(name, "x", width, width) for name in ("query", "key", "value"))
    scores = net.node("MatMul", "scores", q, net.node("Transpose", "turn", k, perm=[0, 2, 1]))
    scaled = net.node("Mul", "scale", scores, net.constant("scale.c", np.array(width**-0.5)))
    mixed = net.node("MatMul", "mix", net.node("Softmax", "softmax", scaled, axis=-1), v)
    x = net.node("Add", "residual", net.dense("project", mixed, width, width), "x")
    inner = net.node("Relu", "relu", net.dense("inner", x, width, 2 * width))
    net.dense("outer", inner, 2 * width, width)
    return net.model((1, tokens, width))


def concat_head() -> onnx.ModelProto:
    """Boxes and class scores of a little detector behind one concatenation."""
    net = _Network()
    x = net.node("Relu", "relu0", net.conv("conv0", "x", (3, 16), strides=[2, 2]))
    x = net.node("Relu", "relu1", net.conv("conv1", x, (16, 24), strides=[2, 2]))
    boxes = net.node("Sigmoid", "boxes", net.conv("box", x, (24, 4), kernel=1))
    classes = net.node("Sigmoid", "scores", net.conv("class", x, (24, 12), kernel=1))
    joined = net.node("Concat", "join", boxes, classes, axis=1)
    net.conv("last", joined, (16, 8), kernel=1)
    return net.model((1, 3, 32, 32))


def fallback() -> onnx.ModelProto:
    """Convolutions around operators that stay on the host."""
    net = _Network()
    x = net.node("Relu", "relu0", net.conv("conv0", "x", (3, 16)))
    net.constants.append(numpy_helper.from_array(np.array(3, np.int64), "axis"))
    x = net.node("CumSum", "sums", x, "axis")
    x = net.node("Relu", "relu1", net.conv("conv1", x, (16, 16)))
    x = net.node("Trilu", "triangle", x)
    net.node("Flatten", "flatten", net.node("GlobalAveragePool", "pool", net.conv("conv2", x, (16, 12))))
    return net.model((1, 3, 16, 16))


@dataclass(frozen=True, eq=False)
class Subject:
    """One network on one machine in one precision, without fault.

    Attributes:
        name: of the network, its precision and machine.
        stages: of the model.
        feeds: the data on which it is checked; the first axis of every array counts samples.
    """

    name: str
    stages: Stages
    feeds: Mapping[str, np.ndarray]

    @cached_property
    def samples(self) -> tuple[dict[str, np.ndarray], ...]:
        """The data, an inference each."""
        first = next(iter(self.feeds.values()))
        return tuple({name: values[i : i + 1] for name, values in self.feeds.items()} for i in range(len(first)))

    @property
    def intents(self) -> Mapping[str, Intent]:
        """What every program is meant to do, by symbol."""
        return self.stages.intents

    def layers_of_step(self, step: str) -> tuple[str, ...]:
        """Nodes that a step of the host module stands for; of one that gives programs their operands, the readers."""
        stages = self.stages
        steps = HostSteps(deserialize(stages.compiled.host)).steps
        symbols = {symbol: symbol.encode() for symbol in stages.graphs}
        calls = _calls(with_runtime_calls(stages.parted.module, symbols))
        names = {one.name: onnx_node_name(call) for one, call in zip(steps, calls, strict=True)}
        partitions = [call for call in _calls(stages.parted.module) if isinstance(call.op, tvm.ir.GlobalVar)]
        readers = [
            layer_name(next(node for node in graph.nodes if name in node.inputs))
            for call, one in zip(partitions, (one for one in steps if one.program is not None), strict=True)
            for graph in (stages.graphs[call.op.name_hint],)
            for name, argument in zip(graph.inputs, one.arguments, strict=True)
            if argument == step
        ]
        return tuple(filter(None, (names[step], *readers)))

    @cached_property
    def outputs(self) -> list[dict[str, np.ndarray]] | None:
        """Of every sample."""
        return outputs_of(self.stages, self.samples)


def _calls(module: tvm.IRModule) -> list[tvm.ir.Call]:
    """Of operators and partitions in the main function of a module, in order."""
    values = (binding.value for block in module["main"].body.blocks for binding in block.bindings)
    return [value for value in values if isinstance(value, tvm.ir.Call)]


def outputs_of(stages: Stages, samples: tuple[dict[str, np.ndarray], ...]) -> list[dict[str, np.ndarray]] | None:
    """What the compiled model of some stages makes of samples; None when it is refused."""
    try:
        return [stages.compiled.run(sample) for sample in samples]
    except TorqError:
        return None


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "residual": residual,
    "depthwise": depthwise,
    "attention": attention,
    "concat_head": concat_head,
    "fallback": fallback,
}


def subjects(only: str = "") -> Iterator[Subject]:
    """All subjects, or those whose name begins so."""
    little = replace(NpuConfig(), lram_bytes=LITTLE_LRAM, name="little")
    digits, calibration = load_model(DATA / "digits.onnx"), load_calibration(DATA / "digits_calibration.npz")
    if "digits int8".startswith(only):
        options = Options(precision="int8", calibration=calibration)
        yield _subject("digits int8", digits, options, {name: value[:SAMPLES] for name, value in calibration.items()})
    for name, make in NETWORKS.items():
        model = make()
        shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
        data = np.random.default_rng(SEED).standard_normal((16, *shape[1:])).astype(np.float32)
        for label, options in (
            ("int8", Options(precision="int8", calibration={"x": data})),
            ("int8 little", Options(config=little, precision="int8", calibration={"x": data})),
            ("bf16 little", Options(config=little, precision="bf16")),
        ):
            if f"{name} {label}".startswith(only):
                yield _subject(f"{name} {label}", model, options, {"x": data[:SAMPLES]})


def _subject(name: str, model: onnx.ModelProto, options: Options, feeds: Mapping[str, np.ndarray]) -> Subject:
    return Subject(name, stages_of(model, options, name=name), feeds)
