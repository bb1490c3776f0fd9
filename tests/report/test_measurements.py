"""Figures that must agree with one another, whatever the model: bytes, cycles, memory, levels, disassembly."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, mixed_model, samples
from torq_byoc.compiled_model import Floor
from torq_byoc.npu_model.isa import Engine
from torq_byoc.npu_model.trace import trace
from torq_byoc.report.disassembly import disassemble
from torq_byoc.report.measure import measure
from torq_byoc.report.memory_map import memory_map
from torq_byoc.report.summary import headline, lower_bound, summarize

MODELS = {
    "int8": lambda: torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}),
    "int16": lambda: torq_byoc.compile(conv_model(), precision="int16", calibration={INPUT: samples()}),
    "bf16": lambda: torq_byoc.compile(conv_model()),
    "two partitions": lambda: torq_byoc.compile(mixed_model()),
}


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request):
    return MODELS[request.param]()


def test_layers_account_for_all_traffic_but_the_sequencer_s(model):
    summary = summarize(model)
    moved = {"in": 0, "out": 0}
    transfers = {"in": 0, "out": 0}
    for row in summary["layers"]:
        for key, nbytes in row["bytes"].items():
            moved[key.split("_")[0]] += nbytes
        for way, count in row["transfers"].items():
            transfers[way] += count
    fetched = [block.size for p in model.partitions for block in p.program.blocks[1:]]
    assert moved["in"] + sum(fetched) == summary["dma"]["in_bytes"]
    assert moved["out"] == summary["dma"]["out_bytes"]
    assert transfers["in"] + len(fetched) == summary["dma"]["in_transfers"]
    assert transfers["out"] == summary["dma"]["out_transfers"]


def test_no_schedule_beats_the_lower_bound(model):
    for profile in ("reference", "shared", "pessimistic"):
        summary = summarize(model, profile)
        assert 0 < summary["lower_bound_cycles"]["total"] <= summary["cycles"]["total"]
        assert summary["efficiency"] == summary["lower_bound_cycles"]["total"] / summary["cycles"]["total"]


def test_a_started_cycle_of_the_lower_bound_counts(model):
    """One byte takes a cycle, never none; no term is a cycle above what it is made of."""
    floor, config = model.facts.floor, model.partitions[0].program.config
    tiny = dataclasses.replace(model, facts=msgspec.structs.replace(model.facts, floor=Floor(1, 1, 0.25, 1, 1)))
    assert lower_bound(tiny) == {"compute": 1, "dma_in": 1, "dma_out": 1, "total": 1}
    bound = lower_bound(model)
    for term, cycles in (
        ("compute", floor.mac_cycles / config.slices),
        ("dma_in", floor.in_bytes / config.dma_bytes_per_cycle),
        ("dma_out", floor.out_bytes / config.dma_bytes_per_cycle),
    ):
        assert cycles <= bound[term] < cycles + 1


def test_host_time_is_zero_where_there_is_no_host_part_and_unknown_elsewhere(model):
    host = summarize(model)["cycles"]["host_us"]
    assert headline(model)["cycles"]["host_us"] == host
    assert (host == 0.0) if not model.host else (host is None)


def test_busy_cycles_and_layers_lie_within_the_total(model):
    summary = summarize(model)
    cycles = summary["cycles"]
    assert max(cycles["dma_in"], cycles["dma_out"], *cycles["slices"]) <= cycles["total"]
    for row in summary["layers"]:
        assert 0 <= row["start"] <= row["end"] <= cycles["total"]
        assert row["cycles"] <= row["end"] - row["start"] or row["bound_by"] == "none"
        assert 0 <= row["utilisation"] <= 1
    assert 0 <= summary["mac_utilisation"] <= 1


def test_partitions_add_up(model):
    measurement = measure(model)
    assert summarize(model)["cycles"]["total"] == sum(t.total_cycles for t in measurement.timelines)


def test_lram_in_use_holds_the_largest_transfer_and_fits(model):
    measurement = measure(model)
    for use, timeline in zip(measurement.lram, measurement.timelines, strict=True):
        largest = max(event.nbytes for event in timeline.events)
        assert largest <= use.peak <= measurement.config.lram_usable
        assert [cycle for cycle, _ in use.occupancy] == sorted({cycle for cycle, _ in use.occupancy})
        assert use.occupancy[-1] == (use.occupancy[-1][0], 0)


def test_every_slice_job_has_its_program_and_every_store_its_writer(model):
    measurement = measure(model)
    for (_, timeline), flows in zip(measurement.parts(), measurement.flows, strict=True):
        engines = {event.job: event.engine for event in timeline.events}
        feeds = {reader: set() for reader in engines}
        for flow in flows:
            assert flow.writer < flow.reader
            feeds[flow.reader].add(engines[flow.writer])
        for job, engine in engines.items():
            if engine is Engine.SLICE:
                assert Engine.DMA_IN in feeds[job]
            if engine is Engine.DMA_OUT:
                assert feeds[job], "a store reads what somebody wrote"


def test_memory_map_lies_inside_the_memories(model):
    config = measure(model).config
    for partition in memory_map(measure(model)):
        for span in partition["lram"]:
            assert 0 <= span["address"] < span["address"] + span["bytes"] <= config.lram_bytes
        ends = 0
        for region in partition["xram"]:
            assert region["address"] >= max(ends, config.xram_base)
            ends = region["address"] + region["bytes"]


def test_disassembly_shows_every_start_and_task(model):
    for partition in model.partitions:
        lines = list(disassemble(partition.program))
        starts = [line for line in lines if line.strip().startswith("start ")]
        tasks = [line for line in lines if line.strip().startswith("task ")]
        jobs = [job for step in trace(partition.program) for job in step.jobs]
        assert len(starts) == len(jobs) == len(partition.program.jobs)
        assert len(tasks) == sum(len(job.tasks) for job in jobs)


def test_levels_agree_with_the_totals(model):
    summary = summarize(model)
    assert summary["levels"]["torq_hw"]["cycles"] == summary["cycles"]["total"]
    assert summary["levels"]["torq_hw"]["jobs"] == sum(len(p.program.jobs) for p in model.partitions)
    assert summary["levels"]["tensor"]["macs"] == summary["macs"]
    assert summary["levels"]["scheduled"]["tiles"] == sum(row["tiles"] for row in summary["layers"])


def test_a_model_without_npu_part_is_all_zero_and_no_crash():
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("IsNaN", [INPUT], ["y"], "check")],
        "cpu",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [2, 3])],
    )
    model = torq_byoc.compile(helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9))
    summary = summarize(model)
    assert summary["cycles"]["total"] == 0 and summary["hw"] is None and summary["npu_ops"] == 0
    assert summary["bound_by"] == "none" and summary["efficiency"] == 0.0
