"""The LRAM map: rectangles that no two buffers share, sizes that were declared, and what is left out said."""

from __future__ import annotations

import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, mixed_model, samples
from torq_byoc.report.measure import measure
from torq_byoc.report.page import lram_map as module
from torq_byoc.report.page.lram_map import lram_map
from torq_byoc.report.page.tenancies import KINDS, Tenancy, tenancies


@pytest.fixture(scope="module", params=["int8", "small memory", "two partitions"])
def measurement(request):
    if request.param == "two partitions":
        return measure(torq_byoc.compile(mixed_model()))
    config = {"int8": "sl2610", "small memory": "lram64"}[request.param]
    return measure(torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}, hw=config))


def test_no_byte_has_two_tenants_at_a_time(measurement):
    found = tenancies(measurement)
    for position, one in enumerate(found):
        assert one.kind in KINDS and 0 <= one.start < one.end <= measurement.total_cycles
        assert 0 <= one.address < one.address + one.nbytes <= measurement.config.lram_bytes
        for other in found[position + 1 :]:
            together = one.start < other.end and other.start < one.end
            shared = one.address < other.address + other.nbytes and other.address < one.address + one.nbytes
            assert not (together and shared), (one, other)


def test_every_declared_buffer_and_block_is_there(measurement):
    programs = [partition.program for partition in measurement.model.partitions]
    declared = [b for program in programs for b in program.buffers if b.space == "lram"]
    blocks = [block for program in programs for block in program.blocks]
    found = tenancies(measurement)
    assert sorted((t.address, t.nbytes) for t in found if t.kind != "sequencer") == sorted(
        (b.address, b.nbytes) for b in declared
    )
    assert sorted(t.nbytes for t in found if t.kind == "sequencer") == sorted(block.size for block in blocks)


def test_kinds_tell_what_fills_a_buffer(measurement):
    weights = {t.layer for t in tenancies(measurement) if t.kind == "weights"}
    layers = [layer for p in measurement.model.partitions for layer in p.facts.layers]
    assert weights == {number for number, layer in enumerate(layers) if layer.bytes.get("in_weights")}
    results = {t.layer for t in tenancies(measurement) if t.kind == "result"}
    assert results == set(range(len(layers)))


def test_small_models_are_drawn_whole(measurement):
    drawn = lram_map(measurement, 3000)
    assert list(drawn.rectangles) == tenancies(measurement)
    assert (drawn.gap, drawn.left_out, drawn.left_out_share) == (0, 0, 0.0)
    assert max(held for _, held in drawn.in_use) == max(use.peak for use in measurement.lram)


def test_what_covers_least_is_left_out_and_counted(measurement, monkeypatch):
    monkeypatch.setattr(module, "_MERGE_PARTS", 10**9)
    everything = tenancies(measurement)
    areas = sorted((t.nbytes * (t.end - t.start) for t in everything), reverse=True)
    drawn = lram_map(measurement, 4)
    assert len(drawn.rectangles) == 4 and drawn.left_out == len(everything) - 4
    assert sorted((t.nbytes * (t.end - t.start) for t in drawn.rectangles), reverse=True) == areas[:4]
    assert drawn.left_out_share == pytest.approx(sum(areas[4:]) / sum(areas))


def test_buffers_that_follow_one_another_in_place_are_one_rectangle():
    def tenancy(start: int, end: int, address: int = 64, layer: int = 1, buffers: int = 1) -> Tenancy:
        return Tenancy(layer, "weights", address, 32, start, end, buffers)

    ping_pong = [tenancy(0, 10), tenancy(5, 15, 96), tenancy(12, 20), tenancy(18, 25, 96), tenancy(40, 50)]
    other_layer = [tenancy(51, 60, layer=2)]
    assert module._joined([*ping_pong, *other_layer], 3) == [
        tenancy(0, 20, buffers=2),
        tenancy(5, 25, 96, buffers=2),
        tenancy(40, 50),
        tenancy(51, 60, layer=2),
    ]


def test_a_coarse_curve_keeps_the_peak_of_every_interval(measurement, monkeypatch):
    exact = lram_map(measurement, 3000).in_use
    monkeypatch.setattr(module, "_CURVE_POINTS", 8)
    coarse = lram_map(measurement, 3000).in_use
    assert len(coarse) <= 9
    step = coarse[1][0] - coarse[0][0]
    for begin, most in coarse:
        inside = [held for cycle, held in exact if begin <= cycle < begin + step]
        before = [held for cycle, held in exact if cycle <= begin]
        assert most == max([*inside, *before[-1:]], default=0)
