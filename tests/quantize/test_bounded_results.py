"""Bounded results end at the power of two above what was seen."""

from __future__ import annotations

import pytest

from torq_byoc.quantize.bounded_results import bounded_result
from torq_byoc.quantize.observers import Range


@pytest.mark.parametrize(
    ("seen", "bound"), [(0.9, 1.0), (1.0, 1.0), (0.51, 1.0), (0.5, 0.5), (0.03, 2.0**-5), (1.0000001, 1.0)]
)
def test_probabilities(seen: float, bound: float) -> None:
    found = bounded_result("Sigmoid", Range(0.0, seen))
    assert (found.zero_point, found.dtype) == (-128, "int8")
    assert float(found.scale) * 255 == pytest.approx(bound)


@pytest.mark.parametrize("seen", [Range(-0.2, 0.1), Range(-0.1, 0.2)])
def test_results_of_either_sign_are_centred(seen: Range) -> None:
    found = bounded_result("Tanh", seen)
    assert found.zero_point == 0
    assert float(found.scale) * 127 == pytest.approx(0.25)


def test_nothing_seen_has_a_scale() -> None:
    assert bounded_result("Softmax", Range(0.0, 0.0)).scale > 0
