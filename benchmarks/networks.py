"""A table of networks: cycles, efficiency, bytes, compile and simulation seconds, CPU baseline.

Usage::

    python benchmarks/networks.py MODEL.onnx [MODEL.onnx ...] [--precision int8] [--json FILE]

Float models compiled for int8 are calibrated on seeded normal data, so their figures say how fast a network
is, not how accurate.  All timings of one table are from one run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from torq_byoc.compilation.options import Options
from torq_byoc.compiler import compile_model
from torq_byoc.frontend import load_model, prepare
from torq_byoc.report.baseline import cpu_baseline, example_inputs
from torq_byoc.report.summary import summarize

SAMPLES = 2
COLUMNS = (
    "network",
    "precision",
    "MMAC",
    "cycles",
    "efficiency",
    "DMA in MB",
    "DMA out MB",
    "both slices",
    "DMA hidden",
    "NPU MACs",
    "CPU ops",
    "compile s",
    "simulate s",
    "TVM CPU s",
    "ORT s",
)


def measure(path: Path, precision: str, baseline: bool) -> dict[str, Any]:
    """Compile, simulate and time one network."""
    model = load_model(path)
    prepared = prepare(model, {})
    feeds = example_inputs(prepared)
    quantized = any(node.op_type == "QuantizeLinear" for node in prepared.graph.node)
    calibration = None
    if precision in ("int8", "int16") and not quantized:
        samples = [example_inputs(prepared, seed) for seed in range(1, SAMPLES + 1)]
        calibration = {name: np.concatenate([sample[name] for sample in samples]) for name in feeds}
    started = time.perf_counter()
    options = Options(precision="auto" if quantized else precision, calibration=calibration)
    compiled = compile_model(model, options, name=path.stem)
    compile_seconds = time.perf_counter() - started
    compiled.run(feeds)
    started = time.perf_counter()
    compiled.run(feeds)
    result = {**summarize(compiled), "compile_seconds": compile_seconds}
    result["simulation_seconds"] = time.perf_counter() - started
    result["cpu_baseline"] = cpu_baseline(prepared, feeds, 0.5) if baseline else None
    return result


def row(result: dict[str, Any]) -> list[str]:
    """The table row of one network."""
    cpu = result["cpu_baseline"] or {}
    tvm, ort = cpu.get("tvm_llvm"), cpu.get("onnxruntime")
    return [
        result["model"],
        result["precision"],
        f"{result['macs'] / 1e6:.1f}",
        f"{result['cycles']['total']:,}",
        f"{result['efficiency']:.3f}",
        f"{result['dma']['in_bytes'] / 1e6:.2f}",
        f"{result['dma']['out_bytes'] / 1e6:.2f}",
        f"{result['overlap']['both_slices_busy']:.0%}",
        f"{result['overlap']['dma_hidden']:.0%}",
        f"{result['npu_mac_fraction']:.2%}",
        str(len(result["cpu_ops"])),
        f"{result['compile_seconds']:.1f}",
        f"{result['simulation_seconds']:.2f}",
        f"{tvm['us'] / 1e6:.2f}" if tvm else "-",
        f"{ort['us'] / 1e6:.3f}" if ort else "-",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--precision", default="int8", choices=("int8", "int16", "bf16"))
    parser.add_argument("--no-baseline", action="store_true", help="leave the CPU timings out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    table = Table(*COLUMNS, box=None)
    results = []
    for path in arguments.models:
        results.append(measure(path, arguments.precision, not arguments.no_baseline))
        table.add_row(*row(results[-1]))
    Console(width=220).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
