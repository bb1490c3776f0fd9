"""Views, copies and fills by themselves, and what operands of unlike strides become."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.infra import CONFIG, Lram, random_values
from tests.kernels.infra_elementwise import place_and_emit, run, single
from torq_byoc.errors import KernelError
from torq_byoc.kernels.copies import copy_task, fill_tasks
from torq_byoc.kernels.kernel import Placement, Region
from torq_byoc.kernels.views import View, broadcast_region, broadcast_view, collapse, total_cost, view, walks
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.execute import execute_task
from torq_byoc.npu_model.limits import task_problems
from torq_byoc.npu_model.timing import task_cycles

RNG = np.random.default_rng(17)


def byte_view(*strides: int, address: int = 0) -> View:
    return View(address, DType.INT8, strides)


def test_collapse_merges_only_what_every_view_walks_as_one_run():
    dense, padded = byte_view(60, 20, 5, 1), byte_view(120, 30, 5, 1)
    assert collapse((2, 3, 4, 5), [dense]) == ((120,), [byte_view(1)])
    extents, views = collapse((2, 3, 4, 5), [dense, padded])
    assert extents == (2, 3, 20)
    assert views == [byte_view(60, 20, 1), byte_view(120, 30, 1)]


def test_collapse_drops_axes_of_one_and_keeps_at_least_one():
    assert collapse((1, 7, 1), [byte_view(99, 3, 77)]) == ((7,), [byte_view(3)])
    assert collapse((1, 1), [byte_view(5, 6)]) == ((1,), [byte_view(0)])
    assert collapse((), [byte_view()]) == ((1,), [byte_view(0)])


def test_broadcast_axes_merge_with_each_other():
    extents, views = collapse((4, 5, 6), [byte_view(30, 6, 1), byte_view(0, 0, 0)])
    assert (extents, views[1].strides) == ((120,), (0,))


def test_walks_offer_every_loop_for_the_lanes_and_keep_short_vectors_short():
    offered = list(walks((9, 1, 3)))
    assert [walk.loops[-1].extent for walk in offered] == [3, 1, 9]
    assert [walk.vector for walk in offered] == [4, 1, 12]
    assert next(walks((13,))).vector == 0


def test_broadcast_region_and_view_follow_numpy():
    output = Region((1, 2, 3), (2, 4, 5))
    assert broadcast_region((9, 1), output) == Region((2, 0), (4, 1))
    placed = Placement(1000, Region((2, 0), (4, 1)), (8, 8), DType.INT16)
    assert broadcast_view(placed, (9, 1), output) == View(1000, DType.INT16, (0, 8, 0))


def test_tiles_in_stride_phases_are_refused():
    phased = Placement(64, Region((0, 0), (4, 4)), (2, 1), DType.INT8, (2, 2), (8, 4))
    with pytest.raises(KernelError) as caught:
        view(phased, (0, 0))
    assert "(2, 2)" in caught.value.why


@st.composite
def boxes(draw):
    """A box inside a tensor, and the order in which its axes lie in the target."""
    rank = draw(st.integers(1, 5))
    shape = [draw(st.integers(1, 6)) for _ in range(rank)]
    steps = [draw(st.integers(1, size)) for size in shape]
    extent = [draw(st.integers(1, (size - 1) // step + 1)) for size, step in zip(shape, steps, strict=True)]
    return shape, steps, extent, draw(st.permutations(range(rank)))


@settings(max_examples=60, deadline=None)
@given(boxes(), st.sampled_from([DType.INT8, DType.INT16, DType.FP32]))
def test_copies_of_any_strided_box(box, kind):
    shape, steps, extent, order = box
    x = random_values(RNG, shape, kind)
    lram = Lram(np.random.default_rng(1), 1 << 17)
    source = View(lram.put(x), kind, tuple(s * step for s, step in zip(x.strides, steps, strict=True)))
    room = np.zeros([extent[axis] for axis in order], kind.numpy)
    strides = [0] * len(shape)
    for position, axis in enumerate(order):
        strides[axis] = room.strides[position]
    address = lram.take(room.nbytes)
    task = copy_task(source, View(address, kind, tuple(strides)), extent, CONFIG)
    assert task_problems(task, CONFIG) == []
    execute_task(task, lram.bytes)
    got = lram.bytes[address : address + room.nbytes].view(kind.numpy).reshape(room.shape)
    window = tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(extent, steps, strict=True))
    np.testing.assert_array_equal(got, x[window].transpose(order))


@pytest.mark.parametrize(
    ("kind", "value", "tasks"),
    [
        ("int8", -3, 1),
        ("int16", -700, 1),
        ("int32", 0, 1),
        ("int32", -1, 1),
        ("int32", 1, 2),
        ("float32", 1.5, 2),
        ("bfloat16", -2.5, 1),
    ],
)
def test_fills_take_one_task_unless_the_halves_differ(kind, value, tasks):
    dtype = DType(kind)
    target = View(64, dtype, (40 * dtype.size, dtype.size))
    program = fill_tasks(target, (3, 20), value, CONFIG)
    assert len(program) == tasks
    memory = np.full(4096, 0x5A, np.uint8)
    for task in program:
        assert task_problems(task, CONFIG) == []
        execute_task(task, memory)
    lines = memory[64 : 64 + 120 * dtype.size].view(dtype.numpy).reshape(3, 40)
    np.testing.assert_array_equal(lines[:, :20].astype(np.float64), float(value))
    assert (lines[:, 20:].view(np.uint8) == 0x5A).all()


def test_many_small_tasks_cost_more_than_their_cycles():
    small = fill_tasks(View(64, DType.INT8, (1,)), (64,), 0, CONFIG)
    large = fill_tasks(View(64, DType.INT8, (1,)), (64 * 20,), 0, CONFIG)
    assert task_cycles(small[0]) * 20 == task_cycles(large[0])
    assert total_cost(small * 20, CONFIG) > 5 * total_cost(large, CONFIG)


@pytest.mark.parametrize("op", ["sum2", "maximum"])
def test_a_resident_operand_beside_tiles_takes_two_tasks(op):
    """One operand is a whole tensor, the other and the output are tiles of half of its rows."""
    a, b = (random_values(RNG, (1, 64, 8, 8), DType.INT8) for _ in range(2))
    graph, node, values = single(op, [a, b], a.shape, DType.INT8, weights=(300, 200))
    top = Region((0, 0, 0, 0), (1, 64, 4, 8))
    for resident in ((True, False, False), (False, True, False), (True, False, True), (False, True, True)):
        _, (tasks,) = place_and_emit(graph, node, values, [top], Lram(np.random.default_rng(0), 1 << 17), resident)
        assert len(tasks) == 2
    whole, mixed = ([[Region.whole(a.shape)]], [[top], [Region((0, 0, 4, 0), (1, 64, 4, 8))]])
    np.testing.assert_array_equal(run(graph, node, values, mixed, resident=(True,)), run(graph, node, values, whole))
