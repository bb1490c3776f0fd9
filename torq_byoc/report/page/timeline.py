"""The time axis that the timeline and the LRAM map share: rows of bars, names on them, ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torq_byoc.report.measure import Measurement
from torq_byoc.report.page.bars import Bar, job_bars, merged
from torq_byoc.report.page.lram_map import LramMap, lram_map
from torq_byoc.report.page.naming import Naming

MAX_BARS = 5000
MAX_RECTANGLES = 3000
MAX_LABELS = 300
_LABEL_SHARES = (0.03, 0.008, 0.002)
"""Smallest part of the axis that a name needs, at zoom 1, 4 and 16."""
_JOIN_SHARE = 0.002
_TICKS = 10
_TICK_PARTS = (1, 5, 20)


@dataclass(frozen=True)
class Tick:
    """A line at a cycle; shown from a zoom step (0, 1, 2) on."""

    cycle: int
    step: int


@dataclass(frozen=True)
class Label:
    """The name of a layer over cycles [start, end) of a row; shown from a zoom step (0, 1, 2) on."""

    layer: int
    start: int
    end: int
    step: int


@dataclass(frozen=True)
class Row:
    """One engine."""

    name: str
    busy: int
    bars: tuple[Bar, ...]
    labels: tuple[Label, ...]


@dataclass(frozen=True)
class TimePicture:
    """Everything over time of one compile, drawn on an axis of ``span`` cycles.

    Attributes:
        total: cycles of this compile.
        resolution: of the bars (``bars.merged``); 0: every job is a bar of its own.
    """

    naming: Naming
    total: int
    span: int
    rows: tuple[Row, ...]
    resolution: int
    ticks: tuple[Tick, ...]
    lram: LramMap


def time_picture(measurement: Measurement, naming: Naming, span: int) -> TimePicture:
    """Timeline and LRAM map.

    Args:
        naming: of its layers.
        span: cycles of the axis, at least those of the model, so that two compiles can share a scale.
    """
    rows, resolution = merged(job_bars(measurement), MAX_BARS)
    drawn = tuple(
        Row(_title(track), measurement.busy(track), tuple(bars), _labels(bars, span)) for track, bars in rows.items()
    )
    return TimePicture(
        naming, measurement.total_cycles, span, drawn, resolution, ticks(span), lram_map(measurement, MAX_RECTANGLES)
    )


def ticks(span: int) -> tuple[Tick, ...]:
    """Round numbers from 0 on: about ten, and five and twenty times as many for the zoom steps."""
    coarse = 1
    while span > coarse * _TICKS:
        coarse = coarse * 5 // 2 if str(coarse)[0] == "2" else coarse * 2
    steps: dict[int, int] = {}
    for step, parts in enumerate(_TICK_PARTS):
        if coarse % parts == 0:
            for cycle in range(0, span + 1, coarse // parts):
                steps.setdefault(cycle, step)
    return tuple(Tick(cycle, steps[cycle]) for cycle in sorted(steps))


def _title(track: str) -> str:
    return track.replace("dma_", "DMA ").replace("slice", "slice ")


def _labels(bars: Sequence[Bar], span: int) -> tuple[Label, ...]:
    """Names on stretches of one layer that are long enough to be read."""
    stretches: list[list[int]] = []
    for bar in bars:
        last = stretches[-1] if stretches else None
        if last and last[0] == bar.layer and bar.start - last[2] <= span * _JOIN_SHARE:
            last[2] = max(last[2], bar.end)
        else:
            stretches.append([bar.layer, bar.start, bar.end])
    named = []
    for layer, start, end in stretches:
        step = next((step for step, share in enumerate(_LABEL_SHARES) if end - start >= share * span), None)
        if step is not None and layer >= 0:
            named.append(Label(layer, start, end, step))
    return tuple(sorted(named, key=lambda label: label.start - label.end)[:MAX_LABELS])
