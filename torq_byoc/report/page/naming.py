"""What pictures call layers, and the colours that they have there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torq_byoc.report.page.bars import SEQUENCER, SEVERAL
from torq_byoc.report.page.comparison import Comparison

COLOURS = 24
"""Layers take their colours in turn."""

_SHORT = 56


@dataclass(frozen=True)
class Naming:
    """Names of the layers of one compile.

    Attributes:
        names: short enough for a picture.
        numbers: places in the report's layer table, from 0; None for a layer that is not there.
    """

    names: tuple[str, ...]
    numbers: tuple[int | None, ...]

    def name(self, layer: int) -> str:
        """The name of a layer with its number in the layer table."""
        if layer in (SEQUENCER, SEVERAL):
            return "sequencer program" if layer == SEQUENCER else "several layers"
        number = self.numbers[layer]
        return self.names[layer] if number is None else f"{number + 1} {self.names[layer]}"

    def style(self, layer: int) -> str:
        """The style class with a layer's colour."""
        if layer == SEQUENCER:
            return "sequencer"
        number = None if layer == SEVERAL else self.numbers[layer]
        return "several" if number is None else f"c{number % COLOURS}"


def own_naming(layers: Sequence[Mapping[str, Any]]) -> Naming:
    """For the compile whose layers the table shows."""
    return Naming(_names(layers), tuple(range(len(layers))))


def earlier_naming(layers: Sequence[Mapping[str, Any]], comparison: Comparison) -> Naming:
    """For the other compile: a layer has number and colour of the first one in the table that does its work."""
    numbers: list[int | None] = [None] * len(layers)
    for pair in comparison.layers:
        for layer in pair.before_rows:
            numbers[layer] = min(pair.after_rows, default=None)
    return Naming(_names(layers), tuple(numbers))


def _names(layers: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    nodes = [row["node"] for row in layers]
    half = _SHORT // 2
    return tuple(node if len(node) <= _SHORT else f"{node[:half]}…{node[-half:]}" for node in nodes)
