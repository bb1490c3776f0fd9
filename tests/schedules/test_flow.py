"""The closed forms of pipelines against a walk over all steps, and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules.pipelines import walk

from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.flow import NOTHING, Flow
from torq_byoc.schedules.fusion.band_flow import BandSteps, GroupFlow, NodeStep
from torq_byoc.schedules.fusion.band_kinds import NodeLoads
from torq_byoc.schedules.slice_costs import SliceCost

Steps = list[tuple[int, int, int]]
CYCLES = st.integers(0, 50)
STEPS = st.lists(st.tuples(CYCLES, CYCLES, CYCLES), min_size=1, max_size=5)


def walked(steps: Steps, early: float = 0.0) -> float:
    return walk(*zip(*steps, strict=True), early)


@given(st.lists(st.tuples(STEPS, st.integers(1, 6)), min_size=1, max_size=4))
def test_pipelines_that_follow_one_another_take_what_a_walk_over_their_steps_takes(
    parts: list[tuple[Steps, int]],
) -> None:
    flow = NOTHING
    for steps, times in parts:
        flow = flow.then(Flow.of_steps(steps).times(times))
    everything = [step for steps, times in parts for step in steps * times]
    assert flow.through == walked(everything)
    assert (flow.loads, flow.work, flow.stores) == tuple(map(sum, zip(*everything, strict=True)))
    assert flow.load_work == walked([(load, work, 0) for load, work, _ in everything])
    assert flow.work_store == walked([(0, work, store) for _, work, store in everything])


@given(STEPS, st.integers(0, 80))
def test_loads_that_began_before_shorten_the_way_but_not_the_channels_time(steps: Steps, early: int) -> None:
    assert Flow.of_steps(steps).after(early) == max(walked(steps, early), sum(load for load, _, _ in steps))


@given(STEPS, STEPS, st.integers(1, 6))
def test_without_overlap_each_begins_when_the_one_before_has_ended(first: Steps, second: Steps, times: int) -> None:
    flow = Flow.of_steps(first).then(Flow.of_steps(second).times(times, overlapping=False), overlapping=False)
    assert flow.through == walked(first) + times * walked(second)


@given(st.integers(1, 9), CYCLES, CYCLES, CYCLES, CYCLES, CYCLES)
def test_steps_of_equal_work(steps: int, load: int, extra: int, work: int, store: int, extra_store: int) -> None:
    """The first step loads more than the others, and the last one stores less."""
    loads = [load + extra, *itertools.repeat(load, steps - 1)]
    stores = [*itertools.repeat(store + extra_store, steps - 1), store]
    busy = (np.array([float(sum(loads))]), np.array([float(work * steps)]), np.array([float(sum(stores))]))
    flow = Flow.evenly(*busy, float(load + extra), float(store), np.array([steps]))
    assert float(flow.through[0]) == pytest.approx(walk(loads, [work] * steps, stores))


def node(cycles: int, flowing: int, staying: int, stored: int, program: int, reloads: bool) -> NodeStep:
    cost = SliceCost(cycles, jobs=1, tasks=1, program_bytes=program, program_peak=program)
    return NodeStep(cost, NodeLoads((flowing, 1), (0, 0), (staying, 1), stored), reloads)


def test_a_band_loads_for_later_nodes_while_the_earlier_ones_run() -> None:
    """Two nodes, three bands; the second node's program is the same in every band."""
    config, free = NpuConfig(), CostWeights(0, 0, 0)
    rate = config.dma_bytes_per_cycle
    steps = (node(1000, 2000, 500, 0, 100, True), node(300, 0, 4000, 1500, 200, False))
    bands = (BandSteps(3, steps),)
    opening = [(2600, 1000, 0), (4200, 300, 1500)]
    others = [(2100, 1000, 0), (0, 300, 1500)] * 2
    cycles = [(load / rate, work, store / rate) for load, work, store in opening + others]
    assert GroupFlow(bands, 1, config, free, overlapping=True).alone() == pytest.approx(walked(cycles))
    apart = [walked(cycles[first : first + 2]) for first in (0, 2, 4)]
    assert GroupFlow(bands, 1, config, free, overlapping=False).alone() == pytest.approx(sum(apart))


@given(st.lists(st.tuples(CYCLES, CYCLES, CYCLES), min_size=1, max_size=3), st.integers(1, 4), st.booleans())
def test_no_load_is_between_the_first_work_of_a_band_alone_and_its_last_store(
    nodes: Steps, bands: int, overlapping: bool
) -> None:
    """With one buffer the loads of every later band are; those of the first band lie before its work."""
    config = NpuConfig()
    rate = config.dma_bytes_per_cycle
    steps = tuple(node(work, int(load * rate), 0, int(store * rate), 0, False) for load, work, store in nodes)
    flow = GroupFlow((BandSteps(bands, steps),), 1, config, CostWeights(0, 0, 0), overlapping=overlapping).chained()
    moved = [(int(load * rate) / rate, work, int(store * rate) / rate) for load, work, store in nodes]
    behind = [(0.0, work, store) for _, work, store in moved]
    expected = walked(behind * bands) if overlapping else walked(behind) + (bands - 1) * walked(moved)
    assert flow.work_store == pytest.approx(expected)


def test_slices_wait_where_the_outer_axis_moves_on() -> None:
    config, rate = NpuConfig(), NpuConfig().dma_bytes_per_cycle
    cost = SliceCost(5000, jobs=2, tasks=2, program_bytes=0, program_peak=0)
    step = NodeStep(cost, NodeLoads((100, 1), (8000, 1), (0, 0), 100), True)
    found = GroupFlow((BandSteps(4, (step,)),), 3, config, CostWeights(0, 0, 0), overlapping=True).alone()
    assert found == pytest.approx((100 + 8000 * 3 + 100) / rate + 12 * 5000)


def test_the_first_block_of_sequencer_code_is_in_place() -> None:
    """A load, a slice program and its load are 49 bytes of code each band; a block has 640."""
    config, rate = NpuConfig(), NpuConfig().dma_bytes_per_cycle
    cost = SliceCost(0, jobs=1, tasks=1, program_bytes=0, program_peak=0)
    step = NodeStep(cost, NodeLoads((1000, 1), (0, 0), (0, 0), 0), True)
    few, many = (
        GroupFlow((BandSteps(bands, (step,)),), 1, config, CostWeights(18, 13, 0), overlapping=True).alone()
        for bands in (3, 30)
    )
    assert few == pytest.approx(3 * 1000 / rate)
    assert many == pytest.approx((30 * 1000 + 30 * 49 - 640) / rate)
