"""Arrows between jobs: by hand on small programs, and against what the compiler declared on compiled ones."""

from __future__ import annotations

import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, mixed_model, samples
from tests.npu_model.infra import (
    BYPASS,
    SLICE_WAITS,
    WAIT_IN,
    WAIT_OUT,
    Assembler,
    double_buffered_relu,
    load,
    sliced_conv,
    spilled_chain,
    store,
)
from torq_byoc.kernels.dsl import LoopNest, LoopSpec, Operand, build
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import ActConfig, Role, SliceTask
from torq_byoc.report.flows import follow_flows
from torq_byoc.report.measure import measure


def _pairs(program) -> dict[tuple[int, int], str]:
    flows = follow_flows(program)
    assert len({(flow.writer, flow.reader) for flow in flows}) == len(flows)
    return {(flow.writer, flow.reader): flow.memory for flow in flows}


def test_both_halves_of_a_convolution_read_what_was_loaded_once():
    """Jobs: two fetches, weights, input, a run on either slice, two stores."""
    expected = [(0, 4), (2, 4), (3, 4), (1, 5), (2, 5), (3, 5), (4, 6), (5, 7)]
    assert _pairs(sliced_conv()) == dict.fromkeys(expected, "lram")


def test_what_goes_out_and_comes_back_depends_through_xram():
    """Two stores interleave in the arena and one load takes both; a job's own intermediate is no arrow."""
    lram = [(0, 2), (1, 2), (2, 4), (2, 5), (3, 7), (6, 7), (7, 8), (7, 9)]
    assert _pairs(spilled_chain()) == dict.fromkeys(lram, "lram") | {(4, 6): "xram", (5, 6): "xram"}


def test_a_buffer_used_again_depends_on_its_last_writer():
    """Loads alternate between two buffers: tile 2 reads the third load, not the first one."""
    pairs = _pairs(double_buffered_relu(tiles=3))
    runs = [3, 5, 8]
    assert {reader: sorted(writer for writer, r in pairs if r == reader) for reader in runs} == {
        3: [0, 2],
        5: [1, 4],
        8: [0, 6],
    }


def _copy_rows(asm: Assembler, source: int, target: int, stride: int) -> SliceTask:
    """Four rows of 16 bytes, dense at ``source``, ``stride`` bytes apart at ``target``."""
    nest = LoopNest(
        loops=(LoopSpec("row", 4), LoopSpec("n", 16, Role.LANE)),
        data=Operand(source, DType.INT8, {"row": 16, "n": 1}),
        result=Operand(target, DType.INT8, {"row": stride, "n": 1}),
        alu=BYPASS,
        act=ActConfig(clip_min=-128, clip_max=127),
    )
    return build(nest, asm.config)


def test_interleaved_results_are_told_apart():
    """Each slice writes every other row; a store of one row depends on one slice, a store of all on both."""
    asm = Assembler()
    source, target = asm.input("x", 128), asm.output("y", 144)
    programs = [asm.program(_copy_rows(asm, 0x1000 + 64 * side, 0x2000 + 16 * side, 32)) for side in (0, 1)]
    for side in (0, 1):
        asm.task(asm.fetch(programs[side], 0x3000 + 0x400 * side), WAIT_IN)
    asm.task(load(0x1000, source, 128), WAIT_IN)
    asm.task(asm.run(0, programs[0], 0x3000), asm.run(1, programs[1], 0x3400), *SLICE_WAITS)
    asm.task(store(0x2010, target, 16), WAIT_OUT)
    asm.task(store(0x2000, target + 16, 128), WAIT_OUT)
    pairs = _pairs(asm.finish())
    assert [writer for writer, reader in pairs if reader == 5] == [4]
    assert [writer for writer, reader in pairs if reader == 6] == [3, 4]


@pytest.fixture(scope="module", params=["int8", "small memory", "two partitions"])
def measurement(request):
    if request.param == "two partitions":
        return measure(torq_byoc.compile(mixed_model()))
    config = {"int8": "sl2610", "small memory": "lram64"}[request.param]
    return measure(torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}, hw=config))


def test_every_arrow_is_declared_and_every_declared_read_has_one(measurement):
    """The compiler's buffers come from torq_hl, not from addresses."""
    for (partition, _), flows in zip(measurement.parts(), measurement.flows, strict=True):
        jobs = partition.program.jobs
        fed: dict[int, set[int]] = {}
        for flow in flows:
            shared = set(jobs[flow.writer].writes) & {*jobs[flow.reader].reads, *jobs[flow.reader].writes}
            assert shared, flow
            assert {partition.program.buffers[number].space for number in shared} == {flow.memory}
            fed.setdefault(flow.reader, set()).update(shared)
        written = {number for job in jobs for number in job.writes}
        for number, job in enumerate(jobs):
            assert set(job.reads) & written <= fed.get(number, set())


def test_nobody_reads_before_the_writer_is_done(measurement):
    for (_, timeline), flows in zip(measurement.parts(), measurement.flows, strict=True):
        times = {event.job: event for event in timeline.events}
        assert flows
        assert all(times[flow.writer].end <= times[flow.reader].start for flow in flows)
