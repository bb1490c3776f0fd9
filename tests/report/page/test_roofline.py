"""Points and roofs, by the definition of the axes."""

from __future__ import annotations

import math

import pytest

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.report.page.roofline import HEIGHT, MARGIN, WIDTH, roofline

CONFIG = NpuConfig()
RATE = CONFIG.dma_bytes_per_cycle
PEAK = 2 * 4 * 64
"""Two slices of four groups of 64 lanes, int8."""


def _row(macs: int, cycles: int, dtype: str = "int8", **nbytes: int) -> dict:
    return {"macs": macs, "cycles": cycles, "dtype": dtype, "bytes": nbytes}


def test_layers_at_the_limits_lie_on_the_roofs():
    at_peak = _row(PEAK * 1000, 1000, in_weights=100)
    at_rate = _row(5000, 1000, in_weights=int(RATE * 1000), out_activation=7)
    found = roofline([at_peak, at_rate, _row(0, 50, in_weights=9)], CONFIG, "reference")
    slope, flat = found.roofs
    top, low = found.points
    assert top.y == flat.y1 == flat.y2 and top.rate == PEAK
    across = (low.x - slope.x1) / (slope.x2 - slope.x1)
    assert low.y == pytest.approx(slope.y1 + across * (slope.y2 - slope.y1), abs=0.1)
    assert (slope.x2, slope.y2) == (flat.x1, flat.y1)
    assert found.without_macs == 1


def test_a_decade_is_as_long_everywhere():
    rows = [_row(10 * 10**power, 1000, in_weights=10) for power in range(4)]
    points = roofline(rows, CONFIG, "reference").points
    assert [point.intensity for point in points] == [1, 10, 100, 1000]
    gaps = {round(right.x - left.x, 1) for left, right in zip(points, points[1:], strict=False)}
    assert len(gaps) == 1 and gaps.pop() > 0
    assert all(left.y > right.y for left, right in zip(points, points[1:], strict=False))


@pytest.mark.parametrize(
    ("profile", "intensity"), [("reference", 10.0), ("shared", 100 / 15), ("pessimistic", 100 / 15)]
)
def test_bytes_are_those_that_share_a_channel(profile, intensity):
    (point,) = roofline([_row(100, 10, in_weights=4, in_program=6, out_activation=5)], CONFIG, profile).points
    assert point.intensity == pytest.approx(intensity)


def test_a_layer_without_dma_stands_at_the_edge():
    still, moving = roofline([_row(100, 10), _row(100, 10, in_weights=1)], CONFIG, "reference").points
    assert still.intensity is None and still.x == WIDTH - MARGIN > moving.x


def test_every_type_has_its_roof():
    rows = [_row(9, 3, in_weights=2), _row(9, 3, "bfloat16", in_weights=2), _row(9, 3, "int8", in_weights=2)]
    names = [roof.name for roof in roofline(rows, CONFIG, "reference").roofs]
    assert len(names) == 3 and names[1] == f"{PEAK} MACs a cycle (int8)" and "(bfloat16)" in names[2]


def test_everything_lies_inside_the_picture():
    rows = [_row(1, 10**6, in_weights=10**7), _row(10**9, 10**7, in_weights=1)]
    found = roofline(rows, CONFIG, "reference")
    for point in found.points:
        assert MARGIN <= point.x <= WIDTH - MARGIN and 0 <= point.y <= HEIGHT - MARGIN
    assert all(
        math.isclose(10 ** round(math.log10(float(t.replace(",", "")))), float(t.replace(",", "")))
        for _, t in found.rows
    )


def test_no_macs_no_picture():
    assert roofline([_row(0, 10, in_weights=3)], CONFIG, "reference") is None
