"""The Chrome trace: complete, consistent with the timeline, and followable."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, mixed_model, samples
from torq_byoc.report.measure import measure
from torq_byoc.report.trace import chrome_trace, write_trace


@pytest.fixture(scope="module")
def measurement():
    return measure(torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}))


@pytest.fixture(scope="module")
def trace(measurement):
    return json.loads(json.dumps(chrome_trace(measurement)))


def _named_tracks(trace):
    return {e["args"]["name"]: e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name"}


def test_every_engine_has_a_track_with_events(trace):
    tracks = _named_tracks(trace)
    assert set(tracks) == {"host", "DMA in", "DMA out", "slice 0", "slice 1"}
    used = {event["tid"] for event in trace["traceEvents"] if event["ph"] in "Xi"}
    assert used == set(tracks.values())


def test_the_name_says_that_a_nanosecond_is_a_cycle(trace):
    name = next(e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name")
    assert "1 ns = 1 cycle" in name and "reference" in name


def test_durations_add_up_to_the_busy_cycles(trace, measurement):
    busy = defaultdict(float)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            busy[event["cat"]] += event["dur"] * 1000
    for track, cycles in busy.items():
        assert round(cycles) == measurement.busy(track)
    end = max(e["ts"] + e["dur"] for e in trace["traceEvents"] if e["ph"] == "X")
    assert round(end * 1000) == measurement.total_cycles


def test_jobs_of_one_engine_do_not_overlap(trace):
    jobs = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            jobs[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in jobs.values():
        spans.sort()
        assert all(left[1] <= right[0] + 1e-9 for left, right in zip(spans, spans[1:], strict=False))


def test_arrows_are_paired_and_lead_from_load_to_compute_to_store(trace):
    tracks = {tid: name for name, tid in _named_tracks(trace).items()}
    ends = defaultdict(dict)
    for event in trace["traceEvents"]:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
    assert ends and all(set(pair) == {"s", "f"} for pair in ends.values())
    assert all(pair["s"]["ts"] <= pair["f"]["ts"] for pair in ends.values())
    kinds = Counter((tracks[p["s"]["tid"]].split()[0], tracks[p["f"]["tid"]].split()[0]) for p in ends.values())
    assert kinds[("DMA", "slice")] > 0 and kinds[("slice", "DMA")] > 0


def test_lram_counter_returns_to_zero(trace, measurement):
    held = [event["args"]["bytes"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert max(held) == measurement.lram[0].peak and held[-1] == 0 and min(held) >= 0


def test_layers_are_named(trace):
    layers = {event["args"]["layer"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert any("conv" in layer for layer in layers) and any("dense" in layer for layer in layers)


def test_partitions_follow_one_another_and_cpu_work_is_shown(tmp_path):
    model = torq_byoc.compile(mixed_model())
    assert len(model.partitions) == 2
    write_trace(tmp_path / "t.json", model)
    trace = json.loads((tmp_path / "t.json").read_text())
    jobs = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    first_end = measure(model).timelines[0].total_cycles
    first = [e for e in jobs if e["args"]["layer"] == "first"]
    last = [e for e in jobs if e["args"]["layer"] == "last"]
    assert max(e["ts"] + e["dur"] for e in first) * 1000 <= first_end <= min(e["ts"] for e in last) * 1000 + 1e-6
    host = [e for e in trace["traceEvents"] if e["ph"] == "i"]
    assert any("not timed" in e["name"] for e in host)
