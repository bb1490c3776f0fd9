"""Footprints against the definition: the bytes of every point of the nest, one by one."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.npu_model import infra, nests
from torq_byoc.npu_model import intervals
from torq_byoc.npu_model.footprint import (
    task_footprint,
    transfer_lram,
    transfer_xram,
    transfer_xram_bounds,
)
from torq_byoc.npu_model.isa import DmaDescriptor


def members(array: np.ndarray) -> set[int]:
    return {byte for start, end in array.tolist() for byte in range(start, end)}


def normal(array: np.ndarray) -> bool:
    """Sorted, not empty, and neither overlapping nor touching."""
    return bool(np.all(array[:, 0] < array[:, 1]) and np.all(array[1:, 0] > array[:-1, 1]))


@pytest.mark.parametrize("seed", range(150))
def test_footprint_is_exactly_what_the_points_of_the_nest_touch(seed):
    task = nests.random_task(np.random.default_rng(seed))
    reads, writes = nests.touched(task)
    found = task_footprint(task)
    for agent, array in found.operands.items():
        assert normal(array)
        assert members(array) == reads.get(agent, set()), agent.name
    assert normal(found.writes)
    assert members(found.writes) == set(writes)
    assert found.written_bytes == len(writes)
    assert members(found.reads) == set().union(*reads.values())


def test_conv_footprint_by_hand():
    # 2 channels of 5x4 at 100, weights 2 x 36 at 300, one granule of pairs at 400, 4 x 20 results at 500
    task = infra.conv3x3(nests.CONFIG, 100, 300, 400, 500, (2, 5, 4, 4))
    found = task_footprint(task)
    assert found.reads.tolist() == [[100, 140], [300, 372], [400, 432]]
    assert found.writes.tolist() == [[500, 580]]


def test_footprint_of_a_large_conv_takes_well_under_a_millisecond():
    task = infra.conv3x3(nests.CONFIG, 2000, 250000, 290000, 300000, (64, 56, 56, 32))
    task_footprint(task)
    started = time.perf_counter()
    for _ in range(50):
        task_footprint(task)
    assert (time.perf_counter() - started) / 50 < 2e-3


def test_transfer_bytes():
    descriptor = DmaDescriptor(lram=5000, xram=0x200000, run=3, dims=((2, 100), (4, -10)))
    runs = sorted(0x200000 + 100 * a - 10 * b for a in range(2) for b in range(4))
    assert transfer_xram(descriptor).tolist() == [[start, start + 3] for start in runs]
    assert transfer_lram(descriptor).tolist() == [[5000, 5024]]
    assert transfer_xram_bounds(descriptor) == (runs[0], runs[-1] + 3)


@pytest.mark.parametrize("seed", range(60))
def test_spread_is_the_union_of_displaced_copies(seed):
    rng = np.random.default_rng(seed)
    dims = [(int(rng.integers(1, 9)), int(rng.integers(-40, 60))) for _ in range(rng.integers(0, 4))]
    starts = np.sort(rng.integers(500, 600, 3))
    runs = intervals.merge(starts, starts + rng.integers(1, 8, 3))
    expected = members(runs)
    for count, stride in dims:
        expected = {byte + k * stride for byte in expected for k in range(count)}
    found = intervals.spread(runs, dims)
    assert normal(found)
    assert members(found) == expected


def test_spread_of_many_overlapping_copies_stays_exact_and_fast():
    started = time.perf_counter()
    found = intervals.spread(intervals.interval(0, 1), [(100_000, 5), (100_000, 7)])
    assert time.perf_counter() - started < 5
    # every 5a + 7b: all numbers but the 12 that the Frobenius problem of 5 and 7 leaves out at either end
    assert intervals.size(found) == 99_999 * 12 + 1 - 2 * 12


def test_spread_refuses_what_no_memory_holds():
    with pytest.raises(ValueError, match="spans"):
        intervals.spread(intervals.interval(0, 1), [(1 << 28, 1 << 20)])


@pytest.mark.parametrize("seed", range(40))
def test_first_common_finds_the_first_shared_byte(seed):
    rng = np.random.default_rng(seed)
    sets = []
    for _ in range(2):
        starts = np.sort(rng.integers(0, 80, rng.integers(1, 6)))
        sets.append(intervals.merge(starts, starts + rng.integers(1, 6, starts.size)))
    shared = sorted(members(sets[0]) & members(sets[1]))
    found = intervals.first_common(*sets)
    assert (found is None) == (not shared)
    if found:
        assert found[0] == shared[0]
        assert set(range(*found)) <= set(shared)
