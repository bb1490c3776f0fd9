"""The roofline: MACs a cycle of every layer against its MACs a byte of DMA, under the machine's roofs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.report.layers import directions, peak_macs

WIDTH, HEIGHT, MARGIN = 860, 420, 56
"""Of the picture, and of the space for the axes' texts, in pixels."""


@dataclass(frozen=True)
class Point:
    """A layer at (x, y) pixels; ``intensity`` in MACs a byte, None when it moves nothing, ``rate`` in MACs a cycle."""

    layer: int
    x: float
    y: float
    intensity: float | None
    rate: float


@dataclass(frozen=True)
class Roof:
    """A line from (x1, y1) to (x2, y2) pixels."""

    name: str
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Roofline:
    """What is drawn.

    Attributes:
        columns, rows: decades of the axes as (pixel, text).
        without_macs: layers that have no MACs and hence no point.
        channel: whose bytes count.
    """

    points: tuple[Point, ...]
    roofs: tuple[Roof, ...]
    columns: tuple[tuple[float, str], ...]
    rows: tuple[tuple[float, str], ...]
    without_macs: int
    channel: str


def roofline(layers: Sequence[Mapping[str, Any]], config: NpuConfig, profile: str) -> Roofline | None:
    """The roofline of ``report.layers.layer_rows``; None when no layer has MACs.

    The bytes of a layer are those of its busier direction in the ``reference`` profile, where each has a channel
    to itself, else those of both.
    """
    busy = {number: row for number, row in enumerate(layers) if row["macs"] and row["cycles"]}
    if not busy:
        return None
    peaks = {row["dtype"]: peak_macs(row["dtype"], config) for row in busy.values()}
    rate = config.dma_bytes_per_cycle
    measured = {number: (_intensity(row, profile), row["macs"] / row["cycles"]) for number, row in busy.items()}
    known = [intensity for intensity, _ in measured.values() if intensity is not None]
    ridges = [peak / rate for peak in peaks.values()]
    across = _Axis.around([*known, *ridges], MARGIN, WIDTH - MARGIN)
    up = _Axis.around([*(y for _, y in measured.values()), *peaks.values()], HEIGHT - MARGIN, MARGIN / 2)
    points = tuple(
        Point(number, across.end if x is None else across.at(x), up.at(y), x, y) for number, (x, y) in measured.items()
    )
    highest = max(peaks.values())
    start = max(across.low, up.low / rate)
    roofs = [
        Roof(f"{rate:.2f} B a cycle", across.at(start), up.at(start * rate), across.at(highest / rate), up.at(highest))
    ]
    roofs += [
        Roof(f"{peak:,} MACs a cycle ({dtype})", across.at(peak / rate), up.at(peak), across.end, up.at(peak))
        for dtype, peak in peaks.items()
    ]
    channel = "its busier DMA direction" if profile == "reference" else "both DMA directions"
    return Roofline(points, tuple(roofs), across.decades(), up.decades(), len(layers) - len(busy), channel)


def _intensity(row: Mapping[str, Any], profile: str) -> float | None:
    moved = directions(row["bytes"]).values()
    nbytes = max(moved) if profile == "reference" else sum(moved)
    return row["macs"] / nbytes if nbytes else None


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis: values low..high at pixels start..end."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        """An axis of whole decades that holds some positive values with room to spare."""
        low = 10.0 ** math.floor(math.log10(min(values) / 1.5))
        return cls(low, 10.0 ** math.ceil(math.log10(max(values) * 1.5)), start, end)

    def at(self, value: float) -> float:
        """The pixel of a value."""
        part = math.log10(value / self.low) / math.log10(self.high / self.low)
        return round(self.start + part * (self.end - self.start), 2)

    def decades(self) -> tuple[tuple[float, str], ...]:
        """Powers of ten on the axis."""
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return tuple((self.at(10.0**power), f"{10.0**power:,.10g}") for power in range(first, last + 1))
