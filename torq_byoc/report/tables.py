"""Summaries as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from torq_byoc.compiled_model import CompiledModel


def print_summary(summary: Mapping[str, Any]) -> None:
    """Headline figures, coverage and host work of a compiled model."""
    console = Console(highlight=False)
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
    console.print(table)
    print_cpu_ops(console, summary)
    for note in summary["notes"]:
        console.print(f"note: {note}")


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
    Console(highlight=False).print(table)


def print_container(container: Mapping[str, Any]) -> None:
    """Version and sections of a file."""
    console = Console(highlight=False)
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
    Console(highlight=False).print(table)


def print_memory(partitions: Sequence[Mapping[str, Any]]) -> None:
    """XRAM regions and LRAM spans of every partition."""
    console = Console(highlight=False)
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
    console = Console(highlight=False)
    for entry in summary["passes"]:
        saved = ", ".join(f"{key} {value:,}" for key, value in entry["saved"].items()) or "reorders only"
        console.print(f"pass {entry['name']}: {saved}")
    for partition in model.partitions:
        console.print(f"decisions of {partition.facts.symbol}:")
        console.print(partition.facts.decisions)
