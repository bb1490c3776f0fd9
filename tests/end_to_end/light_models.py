"""The ``light_*`` networks of the onnx package with weights that mean something.

The package stores every weight as a constant fill, so that each output is 1/1000.  Here each fill becomes a seeded,
heavy-tailed tensor of the variance that keeps activations alive through the depth of the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = tuple(sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("light_*.onnx")))
_TAIL = 4.0
"""Degrees of freedom of the weights' t distribution."""


def original(name: str) -> onnx.ModelProto:
    """The network as the package has it."""
    return onnx.load(FOLDER / f"light_{name}.onnx")


def recorded(name: str) -> np.ndarray:
    """The package's recorded output for the input ramp of ``ramp``."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((FOLDER / f"light_{name}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def ramp(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """0 .. 1 over each input, as the recorded outputs assume."""
    feeds = {}
    for value in _real_inputs(model):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        feeds[value.name] = (np.arange(prod(shape)).reshape(shape) / prod(shape)).astype(np.float32)
    return feeds


def randomized(name: str, seed: int = 0) -> onnx.ModelProto:
    """The network with seeded random weights."""
    model = original(name)
    graph, rng = model.graph, np.random.default_rng(seed)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    weights, nodes = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape = tuple(int(extent) for extent in numpy_helper.to_array(stored[node.input[0]]))
        values = _weights(rng, shape, *next(_readers(graph, node.output[0])))
        weights.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    inputs = _real_inputs(model)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    graph.ClearField("node")
    graph.node.extend(nodes)
    graph.ClearField("initializer")
    graph.initializer.extend([*kept, *weights])
    graph.ClearField("input")
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 8)
    return model


def _real_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    stored = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in stored]


def _readers(graph: onnx.GraphProto, name: str) -> Iterator[tuple[str, int]]:
    """Operator and input position of what reads a tensor, seen through reshapes."""
    for node in graph.node:
        for position, read in enumerate(node.input):
            if read != name:
                continue
            if node.op_type in ("Unsqueeze", "Reshape"):
                yield from _readers(graph, node.output[0])
            else:
                yield node.op_type, position


def _weights(rng: np.random.Generator, shape: tuple[int, ...], reader: str, position: int) -> np.ndarray:
    if reader in ("Conv", "Gemm", "MatMul") and position == 1:
        fan_in = shape[0] if reader == "MatMul" else prod(shape[1:])
        deviation = np.sqrt(_TAIL / (_TAIL - 2))
        return rng.standard_t(_TAIL, shape) / deviation * np.sqrt(2.0 / max(fan_in, 1))
    if reader == "BatchNormalization":
        return rng.standard_normal(shape) * 0.1 if position in (2, 3) else rng.uniform(0.6, 1.3, shape)
    if reader == "Mul":
        return rng.uniform(0.7, 1.2, shape)
    return rng.standard_normal(shape) * 0.05
