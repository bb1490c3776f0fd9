"""Shape arithmetic, against hand-computed numbers."""

from __future__ import annotations

import pytest

from torq_byoc.errors import ShapeError
from torq_byoc.frontend.geometry import normalize_axis, reshape_target, same_padding


def test_axes():
    assert [normalize_axis(a, 3, "n") for a in (0, 2, -1, -3)] == [0, 2, 2, 0]
    for bad in (3, -4):
        with pytest.raises(ShapeError, match="'n'"):
            normalize_axis(bad, 3, "n")


@pytest.mark.parametrize(
    ("shape", "target", "allow_zero", "expected"),
    [
        ((2, 3, 4), (0, -1), False, (2, 12)),
        ((2, 3, 4), (4, 0, 2), False, (4, 3, 2)),
        ((2, 3, 4), (-1,), False, (24,)),
        ((0, 3), (3, 0), True, (3, 0)),
        ((), (1, 1), False, (1, 1)),
        ((1,), (), False, ()),
    ],
)
def test_reshape(shape, target, allow_zero, expected):
    assert reshape_target(shape, target, allow_zero, "n") == expected


@pytest.mark.parametrize(
    ("shape", "target"), [((2, 3), (4, -1)), ((2, 3), (7,)), ((2, 3), (-1, -1)), ((2, 3), (-2, 3))]
)
def test_reshape_that_loses_elements(shape, target):
    with pytest.raises(ShapeError):
        reshape_target(shape, target, False, "n")


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "upper", "lower"),
    [
        (224, 3, 2, 1, (0, 1), (1, 0)),
        (7, 3, 2, 1, (1, 1), (1, 1)),
        (5, 1, 2, 1, (0, 0), (0, 0)),
        (9, 2, 1, 3, (1, 2), (2, 1)),
        (4, 7, 4, 1, (1, 2), (2, 1)),
    ],
)
def test_same_padding(size, kernel, stride, dilation, upper, lower):
    assert same_padding(size, kernel, stride, dilation, lower=False) == upper
    assert same_padding(size, kernel, stride, dilation, lower=True) == lower
