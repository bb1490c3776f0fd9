"""The page of the accuracy check: pictures drawn from the figures."""

from __future__ import annotations

import pytest

from torq_byoc.report.page.accuracy import HEIGHT, HIGHEST, MARGIN, SQUARE, WIDTH, layer_picture, part_picture


def _row(node: str, overall: float, local: float) -> dict:
    return {"node": node, "tensor": node, "overall": {"sqnr": overall}, "local": {"sqnr": local}}


def test_layers_stand_in_order_and_higher_is_better():
    picture = layer_picture([_row("a", 40, 60), _row("b", 20, 20), _row("c", -200, 200)])
    xs = [mark.x for mark in picture.marks]
    assert xs == sorted(xs) and xs[0] > MARGIN and xs[-1] < WIDTH - MARGIN
    first, second, last = picture.marks
    assert first.local_y < first.overall_y < second.overall_y == second.local_y
    assert last.overall_y == HEIGHT - MARGIN  # nothing is below 0 dB
    assert last.local_y == layer_picture([_row("d", HIGHEST, HIGHEST)]).marks[0].overall_y
    assert picture.path.startswith("M") and picture.path.count("L") == 2
    assert layer_picture([]) is None


def test_equal_values_lie_on_the_diagonal():
    picture = part_picture("y", [(-1.0, -1.0), (0.0, 0.0), (3.0, 3.0)])
    assert (picture.low, picture.high) == (-1.0, 3.0)
    assert all(x == pytest.approx(SQUARE - y) for x, y in picture.dots)
    assert picture.dots[0] == (0.0, SQUARE) and picture.dots[2] == (SQUARE, 0.0)


def test_values_of_a_constant_part():
    assert part_picture("y", [(2.0, 2.0), (2.0, 2.0)]).dots == ((0.0, SQUARE), (0.0, SQUARE))
