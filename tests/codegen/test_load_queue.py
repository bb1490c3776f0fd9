"""The queue of loads: who waits, who may go first, and how late is early enough."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.infra import check_program, convolution
from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.hl import Access, Effect, Invocation, PlacedOperand, RunProgram, SliceRun, Store, Transfer
from torq_byoc.codegen.load_queue import FillingGaps, InOrder, Waiting
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.graph import OpGraph
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.timing import simulate_timeline
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.record import DecisionRecord

NOTHING = PlacedOperand(-1, 0, (1,), Region((0,), (1,)), (1,), DType.INT8)


def _program(slices: list[int], stores: dict[int, int]) -> RunProgram:
    """Steps of one slice with these cycles, and stores of these cycles in some of them."""
    invocation = Invocation("n", Region((0,), (1,)), NOTHING, (), ())
    runs = [SliceRun("n", step, 0, invocation, (0, 1), 0, 0, 8, (), cycles) for step, cycles in enumerate(slices)]
    read, write = Access(1, Effect.READ), Access(2, Effect.WRITE)
    moved = [Store("n", step, -1, read, write, Transfer(0, 0, 8), cycles) for step, cycles in stores.items()]
    return RunProgram((), tuple(sorted([*runs, *moved], key=lambda op: op.step)), {})


def test_in_order_nobody_overtakes() -> None:
    queue = InOrder()
    assert [queue.enter(Waiting(2, 10, slot, -1)) for slot in (0, 2, 0)] == [0, 2, 2]


def test_what_fits_runs_before_a_load_that_waits_for_a_store() -> None:
    """Step 0 starts at 20, takes 100 cycles and its store 50: the channel idles from 20 to 170."""
    queue = FillingGaps(_program([100, 100, 100], {0: 50}), lookahead=96)
    assert queue.enter(Waiting(0, 20, 0, -1)) == 0
    assert queue.enter(Waiting(1, 30, 1, 0)) == 1
    assert queue.enter(Waiting(2, 150, 0, -1)) == 0
    assert queue.enter(Waiting(2, 1, 0, -1)) >= 1, "the gap is full"


def test_what_does_not_fit_runs_behind_unless_the_same_step_needs_it() -> None:
    def queue() -> FillingGaps:
        found = FillingGaps(_program([100, 100, 100], {0: 50}), lookahead=96)
        found.enter(Waiting(0, 20, 0, -1))
        found.enter(Waiting(1, 30, 1, 0))
        return found

    assert queue().enter(Waiting(2, 151, 0, -1)) == 1
    assert queue().enter(Waiting(1, 151, 0, -1)) == 0


def test_a_load_takes_its_place_when_the_channel_is_free_for_it() -> None:
    """The channel is busy until the end of step 1: a later load need not hold memory in steps 0 and 1."""
    queue = FillingGaps(_program([100, 100, 100, 100], {}), lookahead=96)
    queue.enter(Waiting(0, 10, 0, -1))
    assert queue.enter(Waiting(3, 200, 0, -1)) == 0
    assert queue.enter(Waiting(3, 10, 0, -1)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_room_before_the_soonest_slot_makes_no_difference(seed: int) -> None:
    """Whoever looks for room need not look at earlier slots than that."""
    rng = np.random.default_rng(seed)
    steps = 12
    stores = {int(step): int(rng.integers(1, 200)) for step in rng.integers(0, steps, 5)}
    program = _program(rng.integers(1, 200, steps).tolist(), stores)
    for make in (InOrder, lambda: FillingGaps(program, lookahead=5)):
        queue, other = make(), make()
        for first_use in np.sort(rng.integers(0, steps, 40)).tolist():
            earliest = int(rng.integers(0, first_use + 1))
            stored = int(rng.integers(-1, earliest + 1)) - 1 if earliest else -1
            cycles = int(rng.integers(1, 150))
            later = max(earliest, other.soonest(first_use))
            load = Waiting(first_use, cycles, earliest, max(stored, -1))
            assert queue.enter(load) == other.enter(Waiting(first_use, cycles, later, load.stored))


@pytest.fixture(scope="module")
def stored_between() -> OpGraph:
    """Two convolutions with much weight; what passes between them has to go through XRAM."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("pair")
    x = builder.input("x", (1, 32, 12, 12), DType.INT8)
    x = convolution(builder, rng, x, 32, 3, 1, 1, "first")
    builder.output(convolution(builder, rng, x, 64, 3, 1, 1, "second"))
    return builder.finish()


def test_weights_do_not_wait_for_a_tensor_on_its_way_through_xram(stored_between: OpGraph) -> None:
    graph, config = stored_between, NpuConfig()
    check_program(graph, config)
    decisions = DecisionRecord(resident={graph.nodes[0].output: False}, groups=())
    plan = schedule(graph, config, overrides=decisions)
    first, second = (node.name for node in graph.nodes)
    program = generate(graph, plan, config).program
    events = simulate_timeline(program).events
    labelled = [(program.jobs[event.job].label, event) for event in events if event.job >= 0]
    stored = max(event.end for label, event in labelled if event.track == "dma_out" and label == first)
    early = [event for label, event in labelled if event.track == "dma_in" and label == second and event.end <= stored]
    late = [event for label, event in labelled if event.track == "dma_in" and label == second and event.end > stored]
    assert early and late
