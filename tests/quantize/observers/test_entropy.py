"""The least divergence, against its definition computed with loops over values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torq_byoc.quantize.observers import Range, Statistics
from torq_byoc.quantize.observers.entropy import divergence, entropy

RNG = np.random.default_rng(3)


def divergence_by_loops(points: list[float], counts: list[int], chosen: Range) -> float:
    """KL(P || Q): outliers belong to the outermost points of P; Q spreads each step's counts over its points."""
    inside = [index for index, point in enumerate(points) if chosen.low <= point <= chosen.high]
    p = {index: float(counts[index]) for index in inside}
    p[inside[0]] += sum(counts[: inside[0]])
    p[inside[-1]] += sum(counts[inside[-1] + 1 :])
    steps: dict[int, list[int]] = {}
    for index in inside:
        steps.setdefault(round((points[index] - chosen.low) / ((chosen.high - chosen.low) / 255)), []).append(index)
    q = {index: sum(counts[i] for i in group) / len(group) for group in steps.values() for index in group}
    total_p, total_q = sum(p.values()), sum(q.values())
    return sum(p[i] / total_p * math.log((p[i] / total_p) / (q[i] / total_q)) for i in inside)


def seen(values: np.ndarray) -> Statistics:
    statistics = Statistics()
    statistics.update(values)
    return statistics


DATA = {
    "heavy tail": RNG.standard_t(2.5, 30_000),
    "one-sided": np.maximum(RNG.standard_t(3, 30_000), 0.0),
    "negative": np.minimum(RNG.standard_t(3, 30_000), 0.0),
    "lopsided": np.where(RNG.random(30_000) < 0.2, -0.1, 1.0) * RNG.exponential(1, 30_000),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("part", [0.05, 0.3, 1.0])
def test_the_divergence_is_what_its_definition_says(name: str, part: float) -> None:
    statistics = seen(DATA[name])
    points, counts = statistics.points()
    low, high = min(statistics.exact.low, 0.0), max(statistics.exact.high, 0.0)
    chosen = Range(part * low, part * high)
    wanted = divergence_by_loops(points.tolist(), counts.tolist(), chosen)
    assert divergence(points, counts, chosen) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("name", DATA)
def test_no_threshold_of_a_grid_is_better(name: str) -> None:
    statistics = seen(DATA[name])
    points, counts = statistics.points()
    exact = statistics.exact
    low, high = min(exact.low, 0.0), max(exact.high, 0.0)
    largest = max(-low, high)
    least = min(
        divergence(points, counts, Range(max(low, -part * largest), min(high, part * largest)))
        for part in np.linspace(0.13, 1, 25)
    )
    assert divergence(points, counts, entropy(statistics)) <= 1.1 * least


def test_zeros_of_a_relu_change_nothing() -> None:
    values = np.maximum(RNG.standard_t(3, 30_000), 0.0)
    values = values[(values == 0.0) | (values > 0.01)]
    assert entropy(seen(values)) == entropy(seen(values[values > 0.0]))


def test_a_range_without_values_diverges() -> None:
    assert divergence(np.array([3.0]), np.array([5]), Range(0.0, 1.0)) == math.inf
