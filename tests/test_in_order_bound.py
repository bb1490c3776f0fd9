"""The in-order bound by hand, and against a simulation byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torq_byoc.in_order_bound import in_order_cycles


@pytest.mark.parametrize(
    ("operators", "capacity", "expected"),
    [
        ([], 10, 0),
        ([(100, 50)], 1000, 100),
        ([(100, 500)], 1000, 500),
        ([(1000, 0), (0, 500)], 1000, 1000),
        ([(1000, 0), (0, 500)], 100, 1400),
        ([(1000, 0), (300, 500), (50, 0)], 100, 1450),
        ([(0, 400), (1000, 0), (0, 400)], 400, 1400),
    ],
)
def test_by_hand(operators: list[tuple[float, float]], capacity: int, expected: float) -> None:
    """At one byte a cycle: what does not fit beside the operator before is loaded when that one is done."""
    assert in_order_cycles(operators, capacity, 1.0) == pytest.approx(expected, rel=0.01)
    assert in_order_cycles(operators, capacity, 1.0) <= expected + 1e-6


def _byte_by_byte(operators: list[tuple[int, int]], capacity: int) -> int:
    """Load one byte a cycle when it fits, and do one product whose weights are there; a product frees its share.

    Every operator has as many products as cycles.
    """
    weights = [0]
    products: list[int] = []
    for cycles, nbytes in operators:
        start = weights[-1]
        products += [start + -(-nbytes * (done + 1) // cycles) for done in range(cycles)]
        weights.append(start + nbytes)
    loaded = done = now = 0
    while done < len(products) or loaded < weights[-1]:
        used = products[done - 1] if done else 0
        loaded += loaded < weights[-1] and loaded - used < capacity
        done += done < len(products) and products[done] <= loaded
        now += 1
    return now


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), min_size=1, max_size=5), st.integers(301, 900))
def test_no_simulated_order_is_faster(operators: list[tuple[int, int]], capacity: int) -> None:
    exact = _byte_by_byte(operators, capacity)
    bound = in_order_cycles([(float(c), float(b)) for c, b in operators], capacity, 1.0)
    assert bound <= exact + 1e-6
    assert bound >= 0.9 * exact - 10
