"""Graphs for code generation tests, and the run that every test makes: generate, verify, simulate, compare."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import numpy as np

from torq_byoc.codegen.generate import GeneratedProgram, generate
from torq_byoc.codegen.hl import RunProgram
from torq_byoc.codegen.prefetch import OrderedProgram
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph, Rescale
from torq_byoc.kernels.reference import evaluate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.simulator import Simulator
from torq_byoc.npu_model.verifier import verify
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.techniques import Techniques


def heavy_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """int8 weights with a few outlier channels."""
    values = rng.standard_t(2.5, shape) * 20
    values[:: max(shape[0] // 3, 1)] *= 4
    return np.clip(np.rint(values), -127, 127).astype(np.int8)


def convolution(
    builder: GraphBuilder,
    rng: np.random.Generator,
    x: str,
    channels: int,
    kernel: int,
    stride: int,
    pad: int,
    name: str,
) -> str:
    """Append a convolution with random weights and rescale."""
    batch, depth, height, width = builder.info(x).shape
    weight = builder.constant(heavy_tailed(rng, (channels, depth, kernel, kernel)), f"{name}_weight")
    rows, columns = ((extent + 2 * pad - kernel) // stride + 1 for extent in (height, width))
    rescale = Rescale(
        rng.integers(-2000, 2000, channels).astype(np.int32),
        rng.integers(2**21, 2**24, channels).astype(np.int32),
        32,
        -3,
        axis=1,
    )
    attrs = {
        "strides": (stride, stride),
        "dilations": (1, 1),
        "pads": (pad,) * 4,
        "groups": 1,
        "pad_value": 7,
    }
    shape = (batch, channels, rows, columns)
    return builder.emit("conv2d", [x, weight], shape, DType.INT8, attrs=attrs, rescale=rescale, origin=name)


def chain(layers: int, channels: int, extent: int) -> OpGraph:
    """Convolutions of 3 x 3 one after the other, over square planes."""
    rng = np.random.default_rng(layers)
    builder = GraphBuilder("chain")
    x = builder.input("x", (1, 4, extent, extent), DType.INT8)
    for index in range(layers):
        x = convolution(builder, rng, x, channels, 3, 1, 1, f"conv{index}")
    builder.output(x)
    return builder.finish()


def addition(builder: GraphBuilder, a: str, b: str, name: str) -> str:
    """Append a residual addition with unlike scales."""
    rescale = Rescale(np.array([1234], np.int32), None, 13, 2)
    return builder.emit(
        "sum2", [a, b], builder.info(a).shape, DType.INT8, attrs={"weights": (5000, 3100)}, rescale=rescale, origin=name
    )


def residual_graph(seed: int, channels: int = 16, size: int = 19) -> OpGraph:
    """Two convolutions with a shortcut, then a stride-2 convolution."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder("residual")
    x = builder.input("x", (1, channels, size, size), DType.INT8)
    first = convolution(builder, rng, x, channels, 3, 1, 1, "first")
    second = convolution(builder, rng, first, channels, 1, 1, 0, "second")
    total = addition(builder, second, x, "shortcut")
    builder.output(convolution(builder, rng, total, 2 * channels - 3, 3, 2, 1, "down"))
    return builder.finish()


def check_places(program: RunProgram, ordered: OrderedProgram, config: NpuConfig) -> None:
    """No two buffers of an order share a byte of LRAM at one time."""
    places = [
        (offset, offset + program.buffers[buffer].nbytes, ordered.lifetimes[buffer])
        for buffer, offset in ordered.offsets.items()
    ]
    assert all(end <= config.lram_usable for _, end, _ in places)
    for (low, high, life), (other_low, other_high, other) in itertools.combinations(places, 2):
        apart = high <= other_low or other_high <= low
        assert apart or life.end < other.start or other.end < life.start


def check_program(
    graph: OpGraph, config: NpuConfig, disabled: Collection[str] = (), budget: float = 0.8, seed: int = 0
) -> GeneratedProgram:
    """Generate and verify; the simulated outputs equal the whole-tensor reference bit for bit."""
    generated = generate(
        graph,
        schedule(graph, config, budget=budget, techniques=Techniques.without(disabled)),
        config,
        disabled=disabled,
    )
    verify(generated.program)
    rng = np.random.default_rng(seed)
    inputs = {}
    for name in graph.inputs:
        info = graph.tensors[name]
        low, high = info.dtype.integer_range
        inputs[name] = rng.integers(low, high + 1, info.shape).astype(info.dtype.numpy)
    expected = evaluate(graph, inputs)
    found = Simulator(generated.program).run(inputs)
    for name in graph.outputs:
        assert np.array_equal(found[name], expected[name]), name
    return generated
