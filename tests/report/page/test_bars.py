"""Bars: nothing is lost by merging, and merging ends below the limit."""

from __future__ import annotations

import random

import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, mixed_model, samples
from torq_byoc.compiled_model import CompiledModel
from torq_byoc.report.measure import measure
from torq_byoc.report.page.bars import SEQUENCER, SEVERAL, Bar, job_bars, merged


def _bar(layer: int, start: int, end: int) -> Bar:
    return Bar(layer, start, end, 1, end - start, 8)


def _int8() -> CompiledModel:
    return torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()})


def _two_partitions() -> CompiledModel:
    return torq_byoc.compile(mixed_model())


@pytest.mark.parametrize("build", [_int8, _two_partitions])
def test_every_job_is_a_bar_of_its_engine(build):
    measurement = measure(build())
    rows = job_bars(measurement)
    assert list(rows) == ["dma_in", "slice0", "slice1", "dma_out"]
    for track, bars in rows.items():
        assert sum(bar.busy for bar in bars) == measurement.busy(track)
        assert all(left.end <= right.start for left, right in zip(bars, bars[1:], strict=False))
    assert sum(map(len, rows.values())) == sum(len(p.program.jobs) for p in measurement.model.partitions)
    layers = {bar.layer for bars in rows.values() for bar in bars} - {SEQUENCER}
    assert layers == set(range(sum(len(p.facts.layers) for p in measurement.model.partitions)))


def test_few_jobs_stay_as_they_are():
    rows = {"dma_in": [_bar(0, 0, 5), _bar(0, 5, 9)], "slice0": [_bar(1, 9, 20)]}
    assert merged(rows, 3) == (rows, 0)


def test_neighbours_of_one_layer_join_over_small_gaps():
    rows = {"dma_in": [_bar(0, 0, 50), _bar(0, 51, 90), _bar(1, 90, 150), _bar(0, 150, 200)]}
    joined, resolution = merged(rows, 3)
    assert resolution == 1
    assert joined["dma_in"] == [Bar(0, 0, 90, 2, 89, 16), _bar(1, 90, 150), _bar(0, 150, 200)]


def test_short_jobs_of_several_layers_join():
    short = [_bar(number, 2 * number, 2 * number + 1) for number in range(10)]
    joined, resolution = merged({"slice0": [*short, _bar(10, 100, 200)]}, 2)
    assert joined["slice0"] == [Bar(SEVERAL, 0, 19, 10, 10, 80), _bar(10, 100, 200)]
    assert resolution == 32


def test_tens_of_thousands_of_jobs_come_below_the_limit_with_all_their_work():
    random.seed(1)
    rows: dict[str, list[Bar]] = {}
    for track in ("dma_in", "slice0", "slice1", "dma_out"):
        now, bars = 0, []
        for _ in range(12_000):
            now += random.choice((0, 0, 3, 40))
            bars.append(_bar(random.randrange(300), now, now + random.randrange(1, 90)))
            now = bars[-1].end
        rows[track] = bars
    joined, resolution = merged(rows, 2000)
    assert resolution > 0 and sum(map(len, joined.values())) <= 2000
    for track, bars in joined.items():
        assert sum(bar.jobs for bar in bars) == 12_000
        assert sum(bar.busy for bar in bars) == sum(bar.busy for bar in rows[track])
        assert sum(bar.nbytes for bar in bars) == 8 * 12_000
        assert (bars[0].start, bars[-1].end) == (rows[track][0].start, rows[track][-1].end)
        assert all(left.end <= right.start for left, right in zip(bars, bars[1:], strict=False))


def test_bars_of_several_layers_stay_about_as_short_as_the_resolution():
    short = [_bar(number, 2 * number, 2 * number + 1) for number in range(100)]
    joined, resolution = merged({"slice0": short}, 20)
    assert all(bar.end - bar.start <= 2 * resolution for bar in joined["slice0"])


def test_no_limit_is_too_small():
    rows = {"dma_in": [_bar(n, 3 * n, 3 * n + 2) for n in range(50)], "slice0": [_bar(0, 0, 1)]}
    joined, _ = merged(rows, 0)
    assert [len(bars) for bars in joined.values()] == [1, 1]
