"""The timeline as Chrome trace JSON, for ui.perfetto.dev or chrome://tracing: one nanosecond shown is one cycle.

Perfetto sorts events by time, keeps the file's order among equal times, and binds the end of an arrow to the
job begun last on its track; it cuts times to whole nanoseconds after multiplying by 1000.  Hence every job is
followed by its own ends of arrows, identifiers are numbers, and times survive that multiplication.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torq_byoc.compiled_model import CompiledModel, Partition
from torq_byoc.npu_model.container import write_file_atomically
from torq_byoc.npu_model.timing import Timeline
from torq_byoc.report.flows import Flow
from torq_byoc.report.lram import LramUse
from torq_byoc.report.measure import Measurement, measure

PROCESS = 1
HOST = 0
_SEQUENCER = "sequencer block"
_UNIT = 1000
"""Trace times are microseconds, so a cycle shown as a nanosecond is a thousandth."""

_VERBS = {"dma_in": "load", "dma_out": "store"}


def write_trace(path: str | Path, model: CompiledModel, profile: str = "reference") -> None:
    """Write the timeline of one inference.

    Raises:
        EnvironmentProblem: the file cannot be written; nothing is left behind.
    """
    write_file_atomically(path, trace_bytes(model, profile))


def trace_bytes(model: CompiledModel, profile: str) -> bytes:
    """The content of the file that ``write_trace`` writes."""
    return json.dumps(chrome_trace(measure(model, profile)), sort_keys=True).encode()


def chrome_trace(measurement: Measurement) -> dict[str, Any]:
    """The trace as plain data: tracks for both DMA directions, every slice and the host, and an LRAM counter.

    Partitions follow one another.  Arrows lead from the job that wrote bytes to each job that reads them: from a
    load to the slice job, from there to the next one or to the store, from a store to the load that fetches its
    bytes again.
    """
    tracks = _tracks(measurement)
    events = list(_metadata(measurement, tracks))
    if measurement.model.facts.cpu_ops:
        events.append(_host_work(measurement))
    offset = arrows = 0
    parts = zip(measurement.parts(), measurement.lram, measurement.flows, strict=True)
    for (partition, timeline), use, flows in parts:
        events += _host_copies(partition, offset, offset + timeline.total_cycles)
        events += _jobs(partition, timeline, tracks, offset, _arrows(timeline, flows, tracks, offset, arrows))
        events += _counter(use, offset)
        offset += timeline.total_cycles
        arrows += len(flows)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"unit": "1 ns = 1 cycle", "profile": measurement.profile, "cycles": measurement.total_cycles},
    }


def _tracks(measurement: Measurement) -> dict[str, int]:
    """Thread number of every engine; the host is thread 0."""
    slices = measurement.config.slices if measurement.config else 0
    names = ["dma_in", *(f"slice{number}" for number in range(slices)), "dma_out"]
    return {name: number for number, name in enumerate(names, start=HOST + 1)}


def _metadata(measurement: Measurement, tracks: dict[str, int]) -> Iterator[dict[str, Any]]:
    machine = measurement.config.name if measurement.config else "no NPU part"
    title = f"{measurement.model.facts.model} on {machine}, 1 ns = 1 cycle, {measurement.profile} profile"
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": title}}
    shown = {"host": HOST, **tracks}
    for name, number in shown.items():
        label = name.replace("dma_", "DMA ").replace("slice", "slice ")
        yield {"ph": "M", "pid": PROCESS, "tid": number, "name": "thread_name", "args": {"name": label}}
        yield {"ph": "M", "pid": PROCESS, "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}}


def _host_work(measurement: Measurement) -> dict[str, Any]:
    """Work on the CPU is not part of the cycle model; it is listed, at the start."""
    operators = measurement.model.facts.cpu_ops
    return {
        **_instant(f"{len(operators)} operators on the CPU, not timed", 0),
        "args": {f"{op.op} {op.node}": op.reason for op in operators},
    }


def _host_copies(partition: Partition, start: int, end: int) -> list[dict[str, Any]]:
    program = partition.program
    given, taken = (sum(b.nbytes for b in bindings) for bindings in (program.inputs, program.outputs))
    return [
        _instant(f"{partition.facts.symbol}: inputs, {given} B", start),
        _instant(f"{partition.facts.symbol}: outputs, {taken} B", end),
    ]


def _instant(name: str, cycle: int) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "pid": PROCESS, "tid": HOST, "ts": _time(cycle), "name": name}


def _jobs(
    partition: Partition,
    timeline: Timeline,
    tracks: dict[str, int],
    offset: int,
    arrows: dict[int, list[dict[str, Any]]],
) -> Iterator[dict[str, Any]]:
    """Each job as a bar, followed by its ends of arrows."""
    for event in timeline.events:
        info = partition.program.jobs[event.job]
        layer = info.label or _SEQUENCER
        verb = _VERBS.get(event.track)
        yield {
            "ph": "X",
            "pid": PROCESS,
            "tid": tracks[event.track],
            "ts": _time(offset + event.start),
            "dur": _time(event.end - event.start),
            "name": f"{verb} {info.kind}: {layer}" if verb else layer,
            "cat": event.track,
            "args": {"layer": layer, "job": event.job, "cycles": event.end - event.start, "bytes": event.nbytes},
        }
        yield from arrows.get(event.job, ())


def _arrows(
    timeline: Timeline, flows: tuple[Flow, ...], tracks: dict[str, int], offset: int, first: int
) -> dict[int, list[dict[str, Any]]]:
    """The ends of arrows by job, numbered from ``first``: in the writer's last cycle and in the reader's first one."""
    events = {event.job: event for event in timeline.events}
    ends: dict[int, list[dict[str, Any]]] = {}
    for identity, flow in enumerate(flows, start=first):
        writer, reader = events[flow.writer], events[flow.reader]
        common = {"id": identity, "pid": PROCESS, "name": f"through {flow.memory.upper()}", "cat": "data"}
        leave = offset + max(writer.start, writer.end - 1)
        ends.setdefault(flow.writer, []).append({**common, "ph": "s", "tid": tracks[writer.track], "ts": _time(leave)})
        ends.setdefault(flow.reader, []).append(
            {**common, "ph": "f", "bp": "e", "tid": tracks[reader.track], "ts": _time(offset + reader.start)}
        )
    return ends


def _counter(use: LramUse, offset: int) -> Iterator[dict[str, Any]]:
    for cycle, held in use.occupancy:
        yield {"ph": "C", "pid": PROCESS, "ts": _time(offset + cycle), "name": "LRAM in use", "args": {"bytes": held}}


def _time(cycle: int) -> float:
    """Microseconds that readers turn back into this number of nanoseconds, rounding down."""
    time = cycle / _UNIT
    return time if int(time * _UNIT) == cycle else math.nextafter(time, math.inf)
