"""Ticks and names on the time axis."""

from __future__ import annotations

import pytest

import torq_byoc
from tests.cli.tools import INPUT, conv_model, samples
from torq_byoc.report.measure import measure
from torq_byoc.report.page.naming import own_naming
from torq_byoc.report.page.timeline import ticks, time_picture
from torq_byoc.report.summary import summary_of


@pytest.mark.parametrize(
    ("span", "step"),
    [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 5), (99, 10), (3223, 500), (50_192, 10_000), (1_181_664, 200_000)],
)
def test_coarse_ticks_are_round_and_about_ten(span, step):
    assert [tick.cycle for tick in ticks(span) if tick.step == 0] == list(range(0, span + 1, step))


def test_zooming_shows_five_and_twenty_times_as_many():
    shown = ticks(40_000)
    steps = [{tick.cycle for tick in shown if tick.step <= step} for step in range(3)]
    assert steps == [set(range(0, 40_001, 5000)), set(range(0, 40_001, 1000)), set(range(0, 40_001, 250))]
    assert [tick.cycle for tick in shown] == sorted(steps[2])


def test_names_stand_on_stretches_of_one_layer():
    measurement = measure(torq_byoc.compile(conv_model(), precision="int8", calibration={INPUT: samples()}))
    naming = own_naming(summary_of(measurement)["layers"])
    picture = time_picture(measurement, naming, measurement.total_cycles)
    assert [row.name for row in picture.rows] == ["DMA in", "slice 0", "slice 1", "DMA out"]
    assert sum(row.busy for row in picture.rows) == sum(sum(t.busy.values()) for t in measurement.timelines)
    named = [(row, label) for row in picture.rows for label in row.labels]
    assert len(named) >= 3
    for row, label in named:
        inside = [bar for bar in row.bars if label.start <= bar.start < label.end]
        assert {bar.layer for bar in inside} == {label.layer}
        assert (inside[0].start, max(bar.end for bar in inside)) == (label.start, label.end)
    assert naming.name(0).startswith("1 conv")


def test_twice_the_axis_has_the_same_bars():
    measurement = measure(torq_byoc.compile(conv_model()))
    naming = own_naming(summary_of(measurement)["layers"])
    one, two = (time_picture(measurement, naming, factor * measurement.total_cycles) for factor in (1, 2))
    assert [row.bars for row in one.rows] == [row.bars for row in two.rows]
    assert one.total == two.total and two.span == 2 * one.span
