"""The timeline as Chrome trace JSON, for ui.perfetto.dev or chrome://tracing: one nanosecond shown is one cycle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torq_byoc.compiled_model import CompiledModel, Partition
from torq_byoc.npu_model.container import write_file_atomically
from torq_byoc.npu_model.program import Program
from torq_byoc.npu_model.timing import Event, Timeline
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
    write_file_atomically(path, json.dumps(chrome_trace(measure(model, profile)), sort_keys=True).encode())


def chrome_trace(measurement: Measurement) -> dict[str, Any]:
    """The trace as plain data: tracks for both DMA directions, every slice and the host, and an LRAM counter.

    Partitions follow one another; arrows lead from a load to the slice job that reads it and on to the store.
    """
    tracks = _tracks(measurement)
    events = list(_metadata(measurement, tracks))
    if measurement.model.facts.cpu_ops:
        events.append(_host_work(measurement))
    offset = 0
    for (partition, timeline), use in zip(measurement.parts(), measurement.lram, strict=True):
        events += _host_copies(partition, offset, offset + timeline.total_cycles)
        events += _jobs(partition.program, timeline, tracks, offset)
        events += _arrows(timeline, use, tracks, offset)
        events += _counter(use, offset)
        offset += timeline.total_cycles
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
    return {"ph": "i", "s": "t", "pid": PROCESS, "tid": HOST, "ts": cycle / _UNIT, "name": name}


def _jobs(program: Program, timeline: Timeline, tracks: dict[str, int], offset: int) -> Iterator[dict[str, Any]]:
    for event in timeline.events:
        info = program.jobs[event.job]
        layer = info.label or _SEQUENCER
        verb = _VERBS.get(event.track)
        yield {
            "ph": "X",
            "pid": PROCESS,
            "tid": tracks[event.track],
            "ts": (offset + event.start) / _UNIT,
            "dur": (event.end - event.start) / _UNIT,
            "name": f"{verb} {info.kind}: {layer}" if verb else layer,
            "cat": event.track,
            "args": {"layer": layer, "job": event.job, "cycles": event.end - event.start, "bytes": event.nbytes},
        }


def _arrows(timeline: Timeline, use: LramUse, tracks: dict[str, int], offset: int) -> Iterator[dict[str, Any]]:
    events = {event.job: event for event in timeline.events}
    for number, (writer, reader) in enumerate(use.edges):
        identity = f"{offset}.{number}"
        yield _arrow_end("s", identity, events[writer], tracks, offset)
        yield {**_arrow_end("f", identity, events[reader], tracks, offset), "bp": "e"}


def _arrow_end(phase: str, identity: str, event: Event, tracks: dict[str, int], offset: int) -> dict[str, Any]:
    return {
        "ph": phase,
        "id": identity,
        "pid": PROCESS,
        "tid": tracks[event.track],
        "ts": (offset + event.start) / _UNIT,
        "name": "data",
        "cat": "data",
    }


def _counter(use: LramUse, offset: int) -> Iterator[dict[str, Any]]:
    for cycle, held in use.occupancy:
        time = (offset + cycle) / _UNIT
        yield {"ph": "C", "pid": PROCESS, "ts": time, "name": "LRAM in use", "args": {"bytes": held}}
