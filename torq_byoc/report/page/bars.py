"""Jobs as bars of a timeline, merged until there are few enough for a browser to draw smoothly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torq_byoc.errors import ProgramFormatError
from torq_byoc.report.measure import Measurement

SEQUENCER = -1
"""In place of a layer's number: a block of the sequencer's program."""
SEVERAL = -2
"""In place of a layer's number: jobs of several layers."""

_FIRST_RESOLUTION = 14


@dataclass(frozen=True)
class Bar:
    """Jobs of one engine drawn as one bar, over cycles [start, end) of the common time line.

    Attributes:
        layer: number of the layer in ``report.layers.layer_rows``, SEQUENCER or SEVERAL.
        busy: cycles in which the engine runs; fewer than the bar is long where it covers gaps.
        nbytes: bytes transferred.
    """

    layer: int
    start: int
    end: int
    jobs: int
    busy: int
    nbytes: int


def tracks(measurement: Measurement) -> tuple[str, ...]:
    """Engines in the order of the rows: DMA in, slices, DMA out."""
    slices = measurement.config.slices if measurement.config else 0
    return ("dma_in", *(f"slice{number}" for number in range(slices)), "dma_out")


def job_layers(measurement: Measurement) -> list[list[int]]:
    """For each partition, the number of every job's layer, or SEQUENCER.

    Raises:
        ProgramFormatError: a job of a damaged container belongs to no layer.
    """
    result: list[list[int]] = []
    first = 0
    for partition in measurement.model.partitions:
        layers = partition.facts.layers
        numbers = {layer.node: first + index for index, layer in enumerate(layers)} | {"": SEQUENCER}
        labels = [job.label for job in partition.program.jobs]
        strange = next((label for label in labels if label not in numbers), None)
        if strange is not None:
            raise ProgramFormatError(
                "a job belongs to no layer", where=f"layer {strange!r}", remedy="compile the model again"
            )
        result.append([numbers[label] for label in labels])
        first += len(layers)
    return result


def job_bars(measurement: Measurement) -> dict[str, list[Bar]]:
    """A bar a job for every engine, in the order of time."""
    rows: dict[str, list[Bar]] = {track: [] for track in tracks(measurement)}
    offset = 0
    for (_, timeline), layers in zip(measurement.parts(), job_layers(measurement), strict=True):
        for event in timeline.events:
            start, end = offset + event.start, offset + event.end
            rows[event.track].append(Bar(layers[event.job], start, end, 1, end - start, event.nbytes))
        offset += timeline.total_cycles
    return {track: sorted(bars, key=lambda bar: (bar.start, bar.end)) for track, bars in rows.items()}


def merged(rows: Mapping[str, Sequence[Bar]], limit: int) -> tuple[dict[str, list[Bar]], int]:
    """Bars merged until at most ``limit`` are left, and the resolution in cycles that this takes.

    At resolution r, neighbours of one layer join when at most r cycles lie between them, and bars shorter than
    r join whatever their layers.  Resolution 0: every job is a bar of its own.
    """
    if sum(map(len, rows.values())) <= limit:
        return {track: list(bars) for track, bars in rows.items()}, 0
    span = max(bar.end for bars in rows.values() for bar in bars)
    resolution = max(1, span >> _FIRST_RESOLUTION)
    while True:
        joined = {track: list(_joined(bars, resolution)) for track, bars in rows.items()}
        if sum(map(len, joined.values())) <= max(limit, len(rows)) or resolution > span:
            return joined, resolution
        resolution *= 2


def _joined(bars: Sequence[Bar], resolution: int) -> Iterator[Bar]:
    last: Bar | None = None
    for bar in bars:
        if last and _join(last, bar, resolution):
            last = replace(
                last,
                layer=bar.layer if bar.layer == last.layer else SEVERAL,
                end=max(bar.end, last.end),
                jobs=last.jobs + bar.jobs,
                busy=last.busy + bar.busy,
                nbytes=last.nbytes + bar.nbytes,
            )
            continue
        if last:
            yield last
        last = bar
    if last:
        yield last


def _join(last: Bar, bar: Bar, resolution: int) -> bool:
    short = max(last.end - last.start, bar.end - bar.start) < resolution
    return bar.start - last.end <= resolution and (last.layer == bar.layer or short)
