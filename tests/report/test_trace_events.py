"""The Chrome trace: complete, consistent with the timeline, and followable."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

import torq_byoc
from tests.cli.tools import conv_model, mixed_model
from torq_byoc.report.measure import measure
from torq_byoc.report.trace import _time, chrome_trace, write_trace


@pytest.fixture(scope="module")
def measurement():
    """Large enough for a second slice to pay for its programs."""
    return measure(torq_byoc.compile(conv_model(height=96), precision="bf16"))


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


def _as_perfetto_reads(trace):
    """Jobs bound to both ends of every arrow, times in whole nanoseconds, by Perfetto's rules.

    Events are sorted by time, equal times in file order; an end belongs to the job begun last on its track,
    which must not be over; identifiers are numbers.
    """
    bars, ends = {}, defaultdict(dict)
    for event in sorted(trace["traceEvents"], key=lambda event: int(event.get("ts", 0) * 1000)):
        now = int(event.get("ts", 0) * 1000)
        if event["ph"] == "X":
            bars[event["tid"]] = (event["args"]["job"], now, now + int(event["dur"] * 1000))
        elif event["ph"] in "sf":
            assert type(event["id"]) is int and event["cat"] == "data"
            job, start, end = bars[event["tid"]]
            assert start <= now < end
            assert event["ph"] not in ends[event["id"], event["name"]]
            ends[event["id"], event["name"]][event["ph"]] = job
    assert all(event["bp"] == "e" for event in trace["traceEvents"] if event["ph"] == "f")
    return ends


def test_perfetto_draws_every_dependency(trace, measurement):
    drawn = Counter((name, pair["s"], pair["f"]) for (_, name), pair in _as_perfetto_reads(trace).items())
    flows = measurement.flows[0]
    assert drawn == Counter((f"through {flow.memory.upper()}", flow.writer, flow.reader) for flow in flows)
    assert len(drawn) > 10


def test_arrows_lead_from_load_to_compute_to_store(trace, measurement):
    tracks = {event.job: event.track[:5] for event in measurement.timelines[0].events}
    kinds = {(tracks[pair["s"]], tracks[pair["f"]]) for pair in _as_perfetto_reads(trace).values()}
    assert {("dma_i", "slice"), ("slice", "slice"), ("slice", "dma_o")} <= kinds


def test_times_are_whole_cycles_after_perfetto_s_rounding(trace, measurement):
    shown = {
        (event["args"]["job"], int(event["ts"] * 1000), int(event["dur"] * 1000))
        for event in trace["traceEvents"]
        if event["ph"] == "X"
    }
    assert shown == {(e.job, e.start, e.end - e.start) for e in measurement.timelines[0].events}


@pytest.mark.parametrize("cycle", [0, 1, 7, 1001, 1003, 16_777_217, 123_456_789_011])
def test_a_time_survives_multiplication_by_a_thousand(cycle):
    assert int(_time(cycle) * 1000) == cycle and abs(_time(cycle) * 1000 - cycle) < 0.001


def test_the_file_is_the_same_every_time(tmp_path, measurement):
    for name in ("a.json", "b.json"):
        write_trace(tmp_path / name, measurement.model)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


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
    identities = [e["id"] for e in trace["traceEvents"] if e["ph"] == "s"]
    assert len(set(identities)) == len(identities) == sum(map(len, measure(model).flows))
