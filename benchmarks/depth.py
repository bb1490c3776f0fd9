"""Compile time against depth: transformer encoders of 1, 2, 4, 8 layers, built here.

Usage::

    python -m benchmarks.depth [--layers 1 2 4 8] [--precision bf16] [--json FILE]

A layer has 749 tokens of width 768, 12 heads and a feed-forward part of width 3072; weights are seeded.  "s / layer"
divides the compile time by the layers, "s / added layer" is the slope against the row above.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from torq_byoc.compilation.options import Options
from torq_byoc.compiler import compile_model
from torq_byoc.report.summary import summarize

SEED = 5
OPSET = 17
COLUMNS = ("layers", "cycles", "efficiency", "compile s", "s / layer", "s / added layer", "slowest stages")


@dataclass(frozen=True)
class Encoder:
    """The sizes of an encoder layer."""

    tokens: int = 749
    width: int = 768
    heads: int = 12
    inner: int = 3072


@dataclass
class _Graph:
    """Nodes and weights under construction; every method returns the name of its result."""

    sizes: Encoder
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def linear(self, name: str, x: str, inputs: int, outputs: int) -> str:
        weights = self.generator.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        bias = 0.1 * self.generator.standard_normal(outputs)
        product = self.node("MatMul", f"{name}_product", x, self.constant(f"{name}_w", weights.astype(np.float32)))
        return self.node("Add", name, product, self.constant(f"{name}_b", bias.astype(np.float32)))

    def norm(self, name: str, x: str) -> str:
        gain = self.constant(f"{name}_gain", np.ones(self.sizes.width, np.float32))
        shift = self.constant(f"{name}_shift", np.zeros(self.sizes.width, np.float32))
        return self.node("LayerNormalization", name, x, gain, shift, axis=-1, epsilon=1e-5)

    def attention(self, name: str, x: str) -> str:
        sizes = self.sizes
        each = sizes.width // sizes.heads
        split = self.constant(f"{name}_split", np.array([1, sizes.tokens, sizes.heads, each]))
        joined = self.constant(f"{name}_joined", np.array([1, sizes.tokens, sizes.width]))
        orders = {"q": (0, 2, 1, 3), "k": (0, 2, 3, 1), "v": (0, 2, 1, 3)}
        parts = {}
        for part, order in orders.items():
            projected = self.linear(f"{name}_{part}", x, sizes.width, sizes.width)
            heads = self.node("Reshape", f"{name}_{part}_heads", projected, split)
            parts[part] = self.node("Transpose", f"{name}_{part}_by_head", heads, perm=order)
        scale = self.constant(f"{name}_scale", np.float32(each) ** np.float32(-0.5))
        products = self.node("MatMul", f"{name}_products", parts["q"], parts["k"])
        weights = self.node("Softmax", f"{name}_weights", self.node("Mul", f"{name}_scores", products, scale), axis=-1)
        mixed = self.node("MatMul", f"{name}_mixed", weights, parts["v"])
        by_token = self.node("Transpose", f"{name}_by_token", mixed, perm=(0, 2, 1, 3))
        return self.linear(
            f"{name}_out", self.node("Reshape", f"{name}_merged", by_token, joined), sizes.width, sizes.width
        )

    def gelu(self, name: str, x: str) -> str:
        root = self.constant(f"{name}_root", np.float32(np.sqrt(2)))
        one, half = self.constant(f"{name}_one", np.float32(1)), self.constant(f"{name}_half", np.float32(0.5))
        erf = self.node("Erf", f"{name}_erf", self.node("Div", f"{name}_scaled", x, root))
        product = self.node("Mul", f"{name}_product", x, self.node("Add", f"{name}_sum", erf, one))
        return self.node("Mul", name, product, half)

    def layer(self, name: str, x: str) -> str:
        sizes = self.sizes
        attended = self.attention(f"{name}_attention", x)
        x = self.norm(f"{name}_norm1", self.node("Add", f"{name}_residual1", x, attended))
        wide = self.gelu(f"{name}_gelu", self.linear(f"{name}_up", x, sizes.width, sizes.inner))
        narrow = self.linear(f"{name}_down", wide, sizes.inner, sizes.width)
        return self.norm(f"{name}_norm2", self.node("Add", f"{name}_residual2", x, narrow))


def encoder_model(layers: int, sizes: Encoder | None = None) -> onnx.ModelProto:
    """A stack of encoder layers, float."""
    sizes = sizes or Encoder()
    graph, last = _Graph(sizes), "x"
    for index in range(layers):
        last = graph.layer(f"layer{index}", last)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, sizes.tokens, sizes.width)) for name in ("x", last)
    ]
    proto = helper.make_graph(graph.nodes, f"encoder{layers}", values[:1], values[1:], graph.constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def measure(layers: int, precision: str, sizes: Encoder | None = None) -> dict[str, Any]:
    """Compile one encoder."""
    model = encoder_model(layers, sizes)
    calibration = None
    if precision != "bf16":
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        calibration = {"x": np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)}
    started = time.perf_counter()
    compiled = compile_model(model, Options(precision=precision, calibration=calibration), name=model.graph.name)
    seconds = time.perf_counter() - started
    summary = summarize(compiled)
    figures = {key: summary[key] for key in ("efficiency", "lower_bound_cycles", "stages")}
    return {"layers": layers, "cycles": summary["cycles"]["total"], "compile_seconds": seconds, **figures}


def rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """One table row a depth, in ascending order."""
    table, before = [], (0, 0.0)
    for result in results:
        layers, seconds = result["layers"], result["compile_seconds"]
        slowest = sorted(result["stages"].items(), key=lambda stage: -stage[1])[:3]
        table.append(
            [
                str(layers),
                f"{result['cycles']:,}",
                f"{result['efficiency']:.3f}",
                f"{seconds:.1f}",
                f"{seconds / layers:.2f}",
                f"{(seconds - before[1]) / (layers - before[0]):.2f}",
                ", ".join(f"{name} {spent:.1f}" for name, spent in slowest),
            ]
        )
        before = layers, seconds
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--precision", default="bf16", choices=("bf16", "int8"))
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    results = [measure(layers, arguments.precision) for layers in sorted(set(arguments.layers))]
    table = Table(*COLUMNS, box=None)
    for row in rows(results):
        table.add_row(*row)
    Console(width=160).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
