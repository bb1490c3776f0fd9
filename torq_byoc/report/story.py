"""One layer through all levels: how it was cut, what each pass made of it, and the jobs that came out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torq_byoc.compiled_model import CompiledModel, Layer
from torq_byoc.errors import ScheduleError, choose_from
from torq_byoc.report.disassembly import disassemble

SHOWN = 4
"""Lines shown of what a level says of the layer, where it says the same many times over."""


@dataclass(frozen=True)
class Level:
    """A printed level of IR, as ``compilation.options.Observer`` receives it."""

    name: str
    text: str


def layer_story(model: CompiledModel, levels: Sequence[Level], name: str, nodes: Collection[str] = ()) -> Iterator[str]:
    """Lines of the story of every layer that a name stands for.

    Args:
        model: compiled while ``levels`` were recorded.
        levels: in the order in which they were printed; where LRAM was short several times over, the last time counts.
        name: an ONNX node, or a layer as the decisions call it.
        nodes: names of all ONNX nodes of the model.

    Raises:
        ScheduleError: no layer of the NPU has that name.
    """
    layers = [layer for partition in model.partitions for layer in partition.facts.layers]
    found = [layer for layer in layers if name == layer.node or name in layer.origin.split("+")]
    if not found:
        known = [layer.origin or layer.node for layer in layers]
        raise _no_layer(name, list(dict.fromkeys(known)), name in nodes)
    latest = {level.name: level.text for level in levels}
    for layer in found:
        yield from _story(model, latest, layer)


def _no_layer(name: str, known: Sequence[str], is_node: bool) -> ScheduleError:
    if is_node:
        return ScheduleError(
            f"no layer came from the node {name!r}",
            where="--explain-layer",
            why="it was folded away, became part of another layer, or runs on the CPU",
            remedy="see what became of it with `torq ops MODEL`, or name another node",
        )
    remedy = choose_from(name, known) if known else "nothing of this model runs on the NPU"
    return ScheduleError(f"no layer is named {name!r}", where="--explain-layer", remedy=remedy)


def _story(model: CompiledModel, levels: dict[str, str], layer: Layer) -> Iterator[str]:
    shape = "x".join(map(str, layer.output_shape))
    yield f"{layer.node} ({layer.origin or 'no ONNX node'})"
    yield f"tensor: {layer.op} -> {layer.dtype}[{shape}], {layer.macs:,} MACs"
    yield from _scheduled(levels.get("scheduled/tir", ""), layer)
    before: list[str] = []
    for name, text in levels.items():
        if name.startswith("torq_hl/"):
            lines = [line.split(": ", 1)[1] for line in text.splitlines() if _node_of(line) == layer.node]
            yield from _transformed(name, before, lines)
            before = lines
    yield from _machine(model, layer)


def _node_of(line: str) -> str:
    """The node of a line of ``codegen.text``; "" for its heading."""
    head = line.split(": ", 1)[0].split(None, 1)
    return head[1] if len(head) == 2 and head[0].isdigit() else ""


def _scheduled(text: str, layer: Layer) -> Iterator[str]:
    """The decision, which heads the layer's function."""
    for line in text.splitlines():
        if line.startswith(f"# {layer.node}: "):
            yield f"scheduled: {line.split(': ', 1)[1]}{', resident' if layer.resident else ''}"


def _transformed(level: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """What a pass did to the layer: how often each kind of operation is there, and the first of the new ones."""
    counts = ", ".join(f"{_count(after, verb)} {verb}s" for verb in ("load", "store", "slice"))
    if list(before) == list(after):
        yield f"{level}: unchanged ({counts})"
        return
    yield f"{level}: {counts}"
    known = set(before)
    yield from _some([line for line in after if line not in known])


def _count(lines: Iterable[str], verb: str) -> int:
    return sum(line.startswith(verb) for line in lines)


def _some(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"    {line}" for line in lines[:SHOWN])
    if len(lines) > SHOWN:
        yield f"    and {len(lines) - SHOWN} more"


def _machine(model: CompiledModel, layer: Layer) -> Iterator[str]:
    """Bytes, and the first jobs."""
    moved = ", ".join(f"{kind} {nbytes:,} B" for kind, nbytes in sorted(layer.bytes.items())) or "nothing moved"
    yield f"torq_hw: {moved}"
    for partition in model.partitions:
        if any(own.node == layer.node for own in partition.facts.layers):
            own_jobs = (line for line in disassemble(partition.program, layer.node) if f" {layer.node} (" in line)
            yield from (f"    {line.strip()}" for line in islice(own_jobs, SHOWN))


def recorder(levels: list[Level]) -> Callable[[str, str], None]:
    """An observer that keeps what it is shown."""

    def keep(name: str, text: str) -> None:
        levels.append(Level(name, text))

    return keep
