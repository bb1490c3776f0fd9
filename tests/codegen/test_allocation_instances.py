"""The public MiniMalloc instances: how much more than the known capacity the allocator needs, and how long it takes."""

import os
from pathlib import Path

import pytest

from benchmarks.minimalloc import ALIGN, Instance, measure, read_instance, read_instances
from tests.codegen.test_allocation import assert_sound
from torq_byoc.codegen.allocation import Request, allocate

DATA = Path(os.environ.get("TORQ_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
INSTANCES = read_instances(DATA / "minimalloc")
DEFAULT_SECONDS = 2.0

pytestmark = pytest.mark.skipif(not INSTANCES, reason=f"no MiniMalloc instances in {DATA / 'minimalloc'}")
each_instance = pytest.mark.parametrize("instance", INSTANCES, ids=[instance.name for instance in INSTANCES])


def test_an_instance_is_read_with_exclusive_upper_ends(tmp_path: Path) -> None:
    path = tmp_path / "X.4096.csv"
    path.write_text("id,lower,upper,size\n0,3,7,1024\n1,7,9,2048\n", encoding="utf-8")
    assert read_instance(path) == Instance("X", 4096, (Request(1024, 3, 6), Request(2048, 7, 8)))


@pytest.mark.parametrize("instance", INSTANCES[:3], ids=[instance.name for instance in INSTANCES[:3]])
def test_first_instances_fit_their_capacity_at_default_effort(instance: Instance) -> None:
    allocation = allocate(instance.requests, instance.capacity, ALIGN)
    assert allocation is not None and allocation.height <= instance.capacity
    assert_sound(instance.requests, allocation, ALIGN)


@pytest.mark.slow
@each_instance
def test_default_effort_needs_at_most_five_percent_more_within_two_seconds(instance: Instance) -> None:
    result = measure(instance, effort=1)
    assert result.needed <= 1.05 * instance.capacity
    assert result.seconds < DEFAULT_SECONDS


@pytest.mark.slow
@each_instance
def test_high_effort_needs_exactly_the_capacity(instance: Instance) -> None:
    allocation = allocate(instance.requests, instance.capacity, ALIGN, effort=2)
    assert allocation is not None and allocation.height <= instance.capacity
    assert_sound(instance.requests, allocation, ALIGN)
