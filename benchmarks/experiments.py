"""Three operators that stress one part of the machine each: cycles and traffic against published and bound figures.

Usage::

    python -m benchmarks.experiments [--json FILE] [--only NAME ...]

``erf`` is bound by tables, ``max_pool`` by transfers and layout, ``conv1d`` by arithmetic and the writing of its
result.  Published figures are those of the vendor's compiler: the two that its developers published (before and after
their improvements) and what its release 2.3.0 reaches.  Data are seeded; the table comes out the same every time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from torq_byoc.compilation.options import Options
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.compiler import compile_model
from torq_byoc.report.summary import summarize

PROFILES = ("reference", "shared")
SEED = 11
OPSET = 17
COLUMNS = (
    "experiment",
    "profile",
    "cycles",
    "us",
    "bound us",
    "DMA in",
    "DMA out",
    "transfers",
    "slice cycles",
    "published us",
    "release 2.3.0 us",
    "times faster",
)


@dataclass(frozen=True)
class Experiment:
    """One operator and what others reach.

    Attributes:
        name: how tables and the command line call it.
        build: makes the model.
        precision: what it is compiled for; "auto" keeps the scales of a quantized model.
        feed: input data for a generator and a shape.
        published: microseconds before and after the improvements that the vendor's developers described.
        release: microseconds of the vendor's release 2.3.0.
    """

    name: str
    build: Callable[[], onnx.ModelProto]
    precision: str
    feed: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    published: tuple[float, float]
    release: float

    def compile(self) -> CompiledModel:
        """The model compiled with the default effort."""
        return compile_model(self.build(), Options(precision=self.precision), name=self.name)

    def feeds(self) -> dict[str, np.ndarray]:
        """Seeded inputs by name, in the types of the model."""
        graph_input = self.build().graph.input[0]
        shape = tuple(dim.dim_value for dim in graph_input.type.tensor_type.shape.dim)
        return {graph_input.name: self.feed(np.random.default_rng(SEED), shape)}


def erf_model(shape: Sequence[int] = (1, 1024, 64)) -> onnx.ModelProto:
    """The error function of every element."""
    node = helper.make_node("Erf", ["x"], ["y"], "erf")
    return _model("erf", [node], shape, shape, TensorProto.FLOAT)


def max_pool_model(
    shape: Sequence[int] = (1, 15, 20, 384), kernel: int = 5, stride: int = 1, pad: int = 2
) -> onnx.ModelProto:
    """A quantized max pool of channel-last data, between the transposes that exporters write around it."""
    batch, height, width, channels = shape
    plane = [(size + 2 * pad - kernel) // stride + 1 for size in (height, width)]
    window: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    nodes = [
        helper.make_node("Transpose", ["x"], ["nchw"], "to_nchw", perm=[0, 3, 1, 2]),
        helper.make_node("DequantizeLinear", ["nchw", "scale", "zero"], ["real"], "dequantize"),
        helper.make_node("MaxPool", ["real"], ["pooled"], "max_pool", **window),
        helper.make_node("QuantizeLinear", ["pooled", "scale", "zero"], ["codes"], "quantize"),
        helper.make_node("Transpose", ["codes"], ["y"], "to_nhwc", perm=[0, 2, 3, 1]),
    ]
    constants: dict[str, np.ndarray] = {"scale": np.asarray(0.05, np.float32), "zero": np.asarray(-3, np.int8)}
    return _model("max_pool", nodes, shape, (batch, *plane, channels), TensorProto.INT8, constants)


def conv1d_model(samples: int = 80_000, filters: int = 288, kernel: int = 127, stride: int = 64) -> onnx.ModelProto:
    """The first layer of a speech encoder: overlapping frames of one signal, many filters, no bias."""
    generator = np.random.default_rng(SEED)
    weights = generator.standard_normal((filters, 1, kernel)).astype(np.float32) / np.sqrt(np.float32(kernel))
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv1d", kernel_shape=[kernel], strides=[stride])
    frames = (samples - kernel) // stride + 1
    return _model("conv1d", [node], (1, 1, samples), (1, filters, frames), TensorProto.FLOAT, {"w": weights})


def _model(
    name: str,
    nodes: list[onnx.NodeProto],
    source: Sequence[int],
    result: Sequence[int],
    element: int,
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", element, source)],
        [helper.make_tensor_value_info("y", element, result)],
        [numpy_helper.from_array(value, key) for key, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _normal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.standard_normal(shape).astype(np.float32)


def _codes(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.integers(-128, 128, shape, dtype=np.int8)


EXPERIMENTS = (
    Experiment("erf", erf_model, "bf16", _normal, (1834.9, 888.0), 270.8),
    Experiment("max_pool", max_pool_model, "auto", _codes, (369.3, 312.9), 266.4),
    Experiment("conv1d", conv1d_model, "bf16", _normal, (5091.1, 4218.8), 2852.7),
)


def figures(experiment: Experiment, compiled: CompiledModel, profile: str) -> dict[str, Any]:
    """The figures of one experiment under one timing profile, as plain data."""
    summary = summarize(compiled, profile)
    clock = _clock_mhz(compiled)
    return {
        "experiment": experiment.name,
        "profile": profile,
        "cycles": summary["cycles"]["total"],
        "us": summary["latency_us"],
        "bound_us": summary["lower_bound_cycles"]["total"] / clock,
        "slice_cycles": sum(summary["cycles"]["slices"]),
        "dma": summary["dma"],
        "cpu_ops": summary["cpu_ops"],
        "published_us": list(experiment.published),
        "release_us": experiment.release,
    }


def _clock_mhz(compiled: CompiledModel) -> float:
    return compiled.partitions[0].program.config.clock_mhz


def row(result: dict[str, Any]) -> list[str]:
    """The table row of one experiment under one profile."""
    dma = result["dma"]
    before, after = result["published_us"]
    return [
        result["experiment"],
        result["profile"],
        f"{result['cycles']:,}",
        f"{result['us']:.1f}",
        f"{result['bound_us']:.1f}",
        f"{dma['in_bytes']:,}",
        f"{dma['out_bytes']:,}",
        f"{dma['in_transfers']} + {dma['out_transfers']}",
        f"{result['slice_cycles']:,}",
        f"{before:.1f} -> {after:.1f}",
        f"{result['release_us']:.1f}",
        f"{result['release_us'] / result['us']:.1f}",
    ]


def run(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Figures of the named experiments, or of all, under every profile."""
    for experiment in EXPERIMENTS:
        if not names or experiment.name in names:
            compiled = experiment.compile()
            yield from (figures(experiment, compiled, profile) for profile in PROFILES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], choices=[experiment.name for experiment in EXPERIMENTS])
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    results = list(run(arguments.only))
    table = Table(*COLUMNS, box=None)
    for result in results:
        table.add_row(*row(result))
    Console(width=200).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
