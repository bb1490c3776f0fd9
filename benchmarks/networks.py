"""A table of networks: cycles against the bound, bytes against the compulsory ones, overlap, memory, time.

Usage::

    python -m benchmarks.networks [NETWORK | MODEL.onnx ...] [--precision int8] [--no-baseline] [--json FILE]

Float models compiled for int8 are calibrated on seeded data, so their figures say how fast a network is, not how
accurate.  Compulsory bytes are each weight and model input once into LRAM and each output once out of it.  "LRAM gap"
is how much higher than the most that is alive at one time the program's buffers reach, packed with their lifetimes.
All timings of one table are from one run.
"""

from __future__ import annotations

import json
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.zoo import Job, arguments, job, networks, op_graphs
from torq_byoc.codegen.allocation import Request, max_live, pack
from torq_byoc.compilation.clock import StageClock
from torq_byoc.compilation.rivals import fastest_candidate
from torq_byoc.compiler import compile_model
from torq_byoc.errors import TorqError
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.report.baseline import cpu_baseline
from torq_byoc.report.summary import summarize

COLUMNS = (
    "network",
    "precision",
    "MMAC",
    "bound",
    "cycles",
    "efficiency",
    "in order",
    "bound by",
    "DMA in kB",
    "DMA out kB",
    "x compulsory",
    "both slices",
    "DMA hidden",
    "LRAM gap",
    "CPU ops",
    "compile s",
    "simulate s",
    "TVM CPU s",
    "ORT s",
)


def measure(job: Job, baseline: bool) -> dict[str, Any]:
    """Compile, simulate and time one network."""
    started = time.perf_counter()
    compiled = compile_model(job.model, job.options, name=job.name)
    compile_seconds = time.perf_counter() - started
    compiled.run(job.feeds)
    started = time.perf_counter()
    compiled.run(job.feeds)
    simulation_seconds = time.perf_counter() - started
    result = summarize(compiled)
    floor = compiled.facts.floor
    return {
        **result,
        "compile_seconds": compile_seconds,
        "simulation_seconds": simulation_seconds,
        "compulsory_bytes": {"in": floor.in_bytes, "out": floor.out_bytes},
        "lram_gap": max((lram_gap(requests, job.options.config) for requests in lram_requests(job)), default=0.0),
        "cpu_baseline": cpu_baseline(job.model, job.feeds, 0.5) if baseline else None,
    }


def lram_requests(job: Job) -> list[tuple[Request, ...]]:
    """LRAM buffers with their lifetimes, program by program."""
    return [
        fastest_candidate(graph, job.options, StageClock()).generated.lram_requests for graph in op_graphs(job).values()
    ]


def lram_gap(requests: tuple[Request, ...], config: NpuConfig) -> float:
    """How much higher than the most that is alive the buffers reach: where they lie, or packed, whichever is lower.

    Args:
        requests: all LRAM buffers of a program; as it was compiled they reach the end of the LRAM at most.
        config: the machine.
    """
    word = config.lram_word
    live = max_live([Request(-(-r.size // word) * word, r.start, r.end) for r in requests])
    if not live:
        return 0.0
    reached = config.lram_usable
    if reached > 1.01 * live:
        reached = min(reached, pack(requests, word).height)
    return reached / live - 1


def row(result: dict[str, Any]) -> list[str]:
    """The table row of one network."""
    cpu, dma, compulsory = result["cpu_baseline"] or {}, result["dma"], result["compulsory_bytes"]
    least = compulsory["in"] + compulsory["out"]
    return [
        result["model"],
        result["precision"],
        f"{result['macs'] / 1e6:.1f}",
        f"{result['lower_bound_cycles']['total']:,}",
        f"{result['cycles']['total']:,}",
        f"{result['efficiency']:.3f}",
        f"{result['in_order_bound_cycles'] / result['cycles']['total']:.3f}",
        result["bound_by"],
        f"{dma['in_bytes'] / 1e3:,.0f}",
        f"{dma['out_bytes'] / 1e3:,.0f}",
        f"{(dma['in_bytes'] + dma['out_bytes']) / least:.2f}" if least else "-",
        f"{result['overlap']['both_slices_busy']:.0%}",
        f"{result['overlap']['dma_hidden']:.0%}",
        f"{result['lram_gap']:.2%}",
        str(len(result["cpu_ops"])),
        f"{result['compile_seconds']:.1f}",
        f"{result['simulation_seconds']:.2f}",
        *(_seconds(cpu.get(name)) for name in ("tvm_llvm", "onnxruntime")),
    ]


def _seconds(figures: dict[str, Any] | None) -> str:
    return f"{figures['us'] / 1e6:.3f}" if figures and "us" in figures else "-"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--no-baseline", action="store_true", help="leave the CPU timings out")
    options = parser.parse_args()
    table, results = Table(*COLUMNS, box=None), []
    for network in networks(options.networks):
        try:
            results.append(measure(job(network, options.precision), not options.no_baseline))
            table.add_row(*row(results[-1]))
        except TorqError as error:
            table.add_row(network.name, error.what)
    Console(width=240).print(table)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
