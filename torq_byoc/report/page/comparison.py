"""Two compiles of one model against each other: in total and layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torq_byoc.compiled_model import ModelFacts, TensorSpec
from torq_byoc.errors import CommandLineError
from torq_byoc.report.layers import directions

FIGURES = ("cycles", "in_bytes", "out_bytes", "in_transfers", "out_transfers")


@dataclass(frozen=True)
class Side:
    """What one compile spends on some layers; ``cycles`` are busy cycles of each layer's busiest engine."""

    cycles: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    in_transfers: int = 0
    out_transfers: int = 0

    def __add__(self, other: Side) -> Side:
        return Side(*(getattr(self, name) + getattr(other, name) for name in FIGURES))

    def __sub__(self, other: Side) -> Side:
        return Side(*(getattr(self, name) - getattr(other, name) for name in FIGURES))


@dataclass(frozen=True)
class Pair:
    """The same work in both compiles; None where one of them has no layer for it.

    Attributes:
        before_rows, after_rows: which layers of each compile do it.
    """

    name: str
    before: Side | None
    after: Side | None
    before_rows: tuple[int, ...] = ()
    after_rows: tuple[int, ...] = ()

    @property
    def change(self) -> Side:
        """After minus before."""
        return (self.after or Side()) - (self.before or Side())


@dataclass(frozen=True)
class Comparison:
    """``total`` counts cycles from start to end; layers overlap, so theirs add up to another number.

    Attributes:
        sequencer: fetches of the sequencer's program, which belong to no layer.
    """

    total: Pair
    layers: tuple[Pair, ...]
    sequencer: Pair


def require_same_model(facts: ModelFacts, other: ModelFacts, path: Path) -> None:
    """Refuse to compare models whose inputs or outputs differ in name, shape or type.

    Raises:
        CommandLineError: they do; names ``path``, where the other one comes from.
    """
    for what in ("inputs", "outputs"):
        own, theirs = (_signature(getattr(side, what)) for side in (facts, other))
        if own != theirs:
            raise CommandLineError(
                "the container to compare with is of another model",
                where=f"--compare {path}",
                why=f"its {what} are {theirs}, those of {facts.model} are {own}",
                remedy="name a container that was compiled from the same model",
            )


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
    """Compare two summaries (``report.summary.summarize``).

    Layers belong together when they share an ONNX node, so a node that is fused in one compile alone stands
    beside what it is fused with.
    """
    total = Pair("whole model", _total(before), _total(after))
    layers = tuple(_pairs(before["layers"], after["layers"]))
    return Comparison(total, layers, Pair("sequencer program", _sequencer(before), _sequencer(after)))


def _signature(specs: Iterable[TensorSpec]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs)


def _total(summary: Mapping[str, Any]) -> Side:
    dma = summary["dma"]
    return Side(summary["cycles"]["total"], *(dma[name] for name in FIGURES[1:]))


def _sequencer(summary: Mapping[str, Any]) -> Side:
    """All traffic but that of layers."""
    layers = sum(map(_side, summary["layers"]), Side())
    rest = _total(summary) - layers
    return Side(0, *(getattr(rest, name) for name in FIGURES[1:]))


def _side(row: Mapping[str, Any]) -> Side:
    moved = directions(row["bytes"])
    return Side(row["cycles"], moved["in"], moved["out"], row["transfers"]["in"], row["transfers"]["out"])


def _pairs(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterable[Pair]:
    """Groups of rows that share nodes, in the order of ``after``; what only ``before`` has comes last."""
    leader: dict[str, str] = {}

    def find(node: str) -> str:
        while leader.setdefault(node, node) != node:
            leader[node] = node = leader[leader[node]]
        return node

    for row in (*after, *before):
        first, *others = row["node"].split("+")
        for other in others:
            leader[find(other)] = find(first)
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for position, rows in ((1, after), (0, before)):
        for number, row in enumerate(rows):
            groups.setdefault(find(row["node"].split("+")[0]), ([], []))[position].append(number)
    for old, new in groups.values():
        names = dict.fromkeys(after[n]["node"] for n in new) or dict.fromkeys(before[n]["node"] for n in old)
        yield Pair(", ".join(names), _sum(before, old), _sum(after, new), tuple(old), tuple(new))


def _sum(rows: Sequence[Mapping[str, Any]], numbers: Sequence[int]) -> Side | None:
    return sum((_side(rows[number]) for number in numbers), Side()) if numbers else None
