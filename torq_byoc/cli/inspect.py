"""``torq inspect``: what is in a container, and what it costs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import click

from torq_byoc.cli.options import MOST_LINES, NAME, PATH, Outcome, json_option, profile_option, refuse_unused


@click.command(name="inspect")
@click.argument("container", type=PATH)
@click.option("--memory", is_flag=True, help="Show the memory map.")
@click.option("--disassemble", "code", is_flag=True, help="Show sequencer steps, slice tasks and descriptors.")
@click.option("--layer", type=NAME, help="Disassemble only steps of layers whose name contains this.")
@click.option(
    "--lines", type=click.IntRange(0, MOST_LINES), default=200, show_default=True, help="Lines to show; 0: all."
)
@profile_option
@json_option
def command(
    container: Path, memory: bool, code: bool, layer: str | None, lines: int, profile: str, as_json: bool
) -> Outcome:
    """Show layers, memory, machine code and header of CONTAINER."""
    if not code:
        refuse_unused(["layer", "lines"], "they are about --disassemble")
    from torq_byoc.cli.container_facts import container_facts
    from torq_byoc.compiled_model import load
    from torq_byoc.report.disassembly import require_layer
    from torq_byoc.report.measure import measure
    from torq_byoc.report.memory_map import memory_map
    from torq_byoc.report.summary import summary_of

    model = load(container)
    if layer:
        require_layer((partition.program for partition in model.partitions), layer)
    measurement = measure(model, profile)
    data: dict[str, Any] = {
        **summary_of(measurement),
        "container": container_facts(container),
        "memory": memory_map(measurement),
    }
    if code:
        data["disassembly"] = _disassembly(model.partitions, layer or "", lines)
    if not as_json:
        _print(data, memory)
    return Outcome(data)


def _disassembly(partitions: Any, layer: str, lines: int) -> list[str]:
    """The first lines of the machine code of all partitions, and how many there are when some are left out."""
    from torq_byoc.report.disassembly import disassemble

    text: list[str] = []
    left = 0
    for partition in partitions:
        code = disassemble(partition.program, layer)
        text.append(f"{partition.facts.symbol}:")
        text += islice(code, lines - len(text)) if lines and lines > len(text) else [] if lines else code
        left += sum(1 for _ in code)
    return [*text, f"... {left} more lines; see --lines and --layer"] if left else text


def _print(data: dict[str, Any], memory: bool) -> None:
    from torq_byoc.report import tables

    tables.print_summary(data)
    tables.print_container(data["container"])
    tables.print_levels(data["levels"])
    tables.print_layers(data)
    if memory:
        tables.print_memory(data["memory"])
    if "disassembly" in data:
        click.echo("\n".join(data["disassembly"]))
