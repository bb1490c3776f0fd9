"""Summaries as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from torq_byoc.compiled_model import CompiledModel

PIPE_WIDTH = 160


class _Console(Console):
    """Prints node names as they are; a closed pipe is the caller's business."""

    def on_broken_pipe(self) -> None:
        """Called while the BrokenPipeError is handled."""
        raise  # noqa: PLE0704


def console_for_output() -> Console:
    """A console for stdout; piped output is not wrapped at 80 columns."""
    console = _Console(highlight=False, markup=False)
    return console if console.is_terminal else _Console(highlight=False, markup=False, width=PIPE_WIDTH)


def print_summary(summary: Mapping[str, Any]) -> None:
    """Headline figures, coverage and host work of a compiled model."""
    console = console_for_output()
    if summary["hw"] is None:
        console.print(f"{summary['model']}: nothing of it runs on the NPU")
    else:
        console.print(_headline(summary))
    print_cpu_ops(console, summary)
    print_remarks(summary)


def print_remarks(data: Mapping[str, Any]) -> None:
    """What was assumed, and what makes the results doubtful."""
    console = console_for_output()
    for kind, sentences in (("note", data["notes"]), ("warning", data["warnings"])):
        for sentence in sentences:
            console.print(f"{kind}: {sentence}")


def _headline(summary: Mapping[str, Any]) -> Table:
    cycles, bound = summary["cycles"], summary["lower_bound_cycles"]
    table = Table(show_header=False, box=None, padding=(0, 2))
    rows = [
        ("model", f"{summary['model']} ({summary['precision']}) on {summary['hw']}"),
        ("cycles", f"{cycles['total']:,} = {summary['latency_us']:.1f} us ({summary['profile']} profile)"),
        ("lower bound", f"{bound['total']:,} (efficiency {summary['efficiency']:.3f})"),
        ("busy", f"{_busy(cycles)} (bound by {summary['bound_by']})"),
        ("DMA", f"{summary['dma']['in_bytes']:,} B in, {summary['dma']['out_bytes']:,} B out"),
        ("LRAM in use", f"at most {summary['lram']['peak']:,} of {summary['lram']['capacity']:,} B"),
        (
            "MACs",
            f"{summary['macs']:,}, {summary['npu_mac_fraction']:.2%} on the NPU, "
            f"{summary['mac_utilisation']:.1%} of its peak",
        ),
        ("operators", f"{summary['npu_ops']} on the NPU, {len(summary['cpu_ops'])} on the CPU"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _busy(cycles: Mapping[str, Any]) -> str:
    slices = ", ".join(f"slice{index} {value:,}" for index, value in enumerate(cycles["slices"]))
    return f"DMA in {cycles['dma_in']:,}, DMA out {cycles['dma_out']:,}, {slices}"


def print_cpu_ops(console: Console, summary: Mapping[str, Any]) -> None:
    """Operators that stay on the CPU, each with its reason."""
    if not summary["cpu_ops"]:
        return
    table = Table("node", "operator", "runs on the CPU because", box=None)
    for op in summary["cpu_ops"]:
        table.add_row(op["node"], op["op"], op["reason"])
    console.print(table)
    copies = summary["host_copies"]
    console.print(f"host copies: {copies['count']} tensors, {copies['bytes']:,} B an inference")


def print_layers(summary: Mapping[str, Any]) -> None:
    """One line a layer: tiles, cycles, what bounds it, bytes."""
    table = Table("layer", "op", "tiles", "cycles", "bound by", "MAC use", "DMA bytes", box=None)
    for layer in summary["layers"]:
        table.add_row(
            layer["node"],
            layer["op"],
            str(layer["tiles"]),
            f"{layer['cycles']:,}",
            layer["bound_by"],
            f"{layer['utilisation']:.0%}",
            f"{sum(layer['bytes'].values()):,}",
        )
    console_for_output().print(table)


def print_container(container: Mapping[str, Any]) -> None:
    """Version and sections of a file."""
    console = console_for_output()
    console.print(f"{container['path']}: {container['bytes']:,} B, format {container['format_version']}")
    table = Table("section", "bytes", "SHA-256", box=None)
    for section in container["sections"]:
        table.add_row(section["name"], f"{section['bytes']:,}", section["sha256"][:16])
    console.print(table)


def print_levels(levels: Mapping[str, Mapping[str, Any]]) -> None:
    """One cost line a level of IR."""
    table = Table("level", "cost", box=None)
    for level, costs in levels.items():
        table.add_row(level, ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in costs.items()))
    console_for_output().print(table)


def print_memory(partitions: Sequence[Mapping[str, Any]]) -> None:
    """XRAM regions and LRAM spans of every partition."""
    console = console_for_output()
    for partition in partitions:
        table = Table("memory", "address", "bytes", "what", box=None, title=partition["partition"])
        for region in partition["xram"]:
            table.add_row(
                "XRAM", f"{region['address']:#x}", f"{region['bytes']:,}", f"{region['kind']} {region['name']}"
            )
        for span in partition["lram"]:
            label = f"{span['layer'] or 'sequencer'} {span['kind']}"
            table.add_row("LRAM", f"{span['address']:#x}", f"{span['bytes']:,}", label)
        console.print(table)


def print_explanation(summary: Mapping[str, Any], model: CompiledModel) -> None:
    """The layer table, what each pass saved, and the decisions."""
    print_layers(summary)
    console = console_for_output()
    for entry in summary["passes"]:
        saved = ", ".join(f"{key} {value:,}" for key, value in entry["saved"].items()) or "reorders only"
        console.print(f"pass {entry['name']}: {saved}")
    for partition in model.partitions:
        console.print(f"decisions of {partition.facts.symbol}:")
        console.out(partition.facts.decisions.rstrip(), highlight=False)


def print_coverage(coverage: Mapping[str, Any]) -> None:
    """Each node of a model with its place."""
    console = console_for_output()
    table = Table("node", "operator", "runs on", "as, or because", box=None)
    for row in coverage["nodes"]:
        table.add_row(row["node"], row["op"], row["place"], row["detail"])
    console.print(table)
    counts = ", ".join(f"{count} {place}" for place, count in coverage["counts"].items())
    console.print(f"{coverage['model']} ({coverage['precision']}): {counts}; {coverage['partitions']} NPU programs")
    print_remarks(coverage)


def print_operators(data: Mapping[str, Any]) -> None:
    """Every operator with its place in each precision."""
    console = console_for_output()
    table = Table("operator", *data["precisions"], "limits", box=None)
    for row in data["operators"]:
        mappings = [row["mappings"][precision] for precision in data["precisions"]]
        cells = [f"{mapping['place']}: {mapping['detail']}" for mapping in mappings]
        table.add_row(row["op"], *cells, "; ".join(dict.fromkeys(m["limits"] for m in mappings if m["limits"])))
    console.print(table)
    console.print(f"others on the CPU: {', '.join(data['other_cpu'])}")
    console.print(f"as the simpler operators that define them: {', '.join(data['defined'])}")
    console.print(f"from constants only: {', '.join(data['sized_by_data'])}")
    console.print(f"not supported: {', '.join(data['unsupported'])}")


def print_benchmark(data: Mapping[str, Any]) -> None:
    """Simulated time beside measured times; they belong to different machines."""
    console = console_for_output()
    table = Table("measured", "us", "against the NPU", "against NPU and its CPU part", box=None)
    npu, host = data["latency_us"], data["cycles"]["host_us"]
    table.add_row(f"NPU {data['hw'] or '(idle)'}, simulated", f"{npu:,.1f}", "", "")
    table.add_row("its CPU part, on this machine", f"{host:,.1f}", "", "")
    for name, label in (("tvm_llvm", "whole model, TVM LLVM untuned"), ("onnxruntime", "whole model, onnxruntime")):
        timing = (data["cpu_baseline"] or {}).get(name, {})
        if "us" in timing:
            ratios = (f"{timing['us'] / part:.2f}x" if part else "" for part in (npu, npu + host))
            table.add_row(f"{label}, on this machine", f"{timing['us']:,.1f}", *ratios)
        elif "unavailable" in timing:
            table.add_row(label, "-", timing["unavailable"], "")
    console.print(table)
    if data["cpu_baseline"] is None:
        console.print("no CPU baseline: a container holds no ONNX graph; give the model instead")
    console.print(f"simulating one inference takes {data['simulation_seconds']:.3f} s")
