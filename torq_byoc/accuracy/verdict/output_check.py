"""Outputs of the NPU against those of the float model, part by part, over all samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.verdict.metrics import Comparison, Figures
from torq_byoc.quantize.evaluation.evaluator import Arrays
from torq_byoc.quantize.output_parts import OutputPart


@dataclass(frozen=True)
class OutputRow:
    """One output, or one part of it.

    Attributes:
        output, part: names; equal for an output of one piece.
        figures: against the float model.
        lost: it is one constant on the NPU, and none in float.
        not_numbers: how many values are NaN on the NPU.
        dead: channels of it of which the same is true.
        agreement: part of the places at which the largest channel is the same one; None for parts without channels.
        points: some values as (float model, NPU), for pictures.
    """

    output: str
    part: str
    figures: Figures
    lost: bool
    not_numbers: int
    dead: tuple[int, ...]
    agreement: float | None
    points: tuple[tuple[float, float], ...] = ()


MOST_POINTS = 400
"""Values that a row shows, evenly spread over the first sample."""


class OutputCheck:
    """Takes in the outputs of both, sample by sample.

    Args:
        parts: of the model's outputs.
    """

    def __init__(self, parts: Iterable[OutputPart]) -> None:
        self._parts = [(part, _box(part), Comparison(), Comparison()) for part in parts]
        self._not_numbers: Counter[tuple[str, str]] = Counter()
        self._points: dict[tuple[str, str], tuple[tuple[float, float], ...]] = {}

    def take(self, wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
        """Take in one sample."""
        for part, box, whole, channels in self._parts:
            pair = wanted[part.output], found[part.output].reshape(wanted[part.output].shape)
            wanted_part, found_part = (part.of(values).reshape(1, -1) for values in pair)
            whole.update(wanted_part, found_part)
            if found_part.dtype.kind not in "biu":
                self._not_numbers[part.output, part.name] += int(np.isnan(found_part.astype(np.float64)).sum())
            self._points.setdefault((part.output, part.name), _points(wanted_part[0], found_part[0]))
            if box is not None:
                wanted_box, found_box = (values[box] for values in pair)
                channels.update(wanted_box, found_box, min(1, wanted_box.ndim - 1))

    def rows(self) -> tuple[OutputRow, ...]:
        """In the order of outputs and parts."""
        return tuple(
            OutputRow(
                part.output,
                part.name,
                whole.figures(),
                bool(whole.dead_channels()),
                self._not_numbers[part.output, part.name],
                channels.dead_channels(),
                channels.agreement(),
                self._points.get((part.output, part.name), ()),
            )
            for part, _, whole, channels in self._parts
        )


def _box(part: OutputPart) -> tuple[slice, ...] | None:
    """Where a part lies if it is a box of its output, for the sake of its channels."""
    if part.mask is None:
        return ()
    places = np.nonzero(part.mask)
    box = tuple(slice(int(along.min()), int(along.max()) + 1) for along in places)
    return box if part.mask[box].all() else None


def _points(wanted: np.ndarray, found: np.ndarray) -> tuple[tuple[float, float], ...]:
    places = np.unique(np.linspace(0, wanted.size - 1, MOST_POINTS).astype(np.int64)) if wanted.size else ()
    pairs = ((float(wanted[place]), float(found[place])) for place in places)
    return tuple(pair for pair in pairs if np.isfinite(pair).all())


def worst(rows: Sequence[OutputRow]) -> OutputRow | None:
    """The row furthest from the float model."""
    return min(rows, key=lambda row: (not row.lost, row.figures.sqnr), default=None)


def stacked(runs: Sequence[Arrays]) -> Arrays:
    """Outputs of several runs, the first axis counting them."""
    return {name: np.stack([run[name] for run in runs]) for name in runs[0]} if runs else {}
