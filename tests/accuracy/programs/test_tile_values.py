"""Places of elements in tiles against loops, and whole tensors put together from tiles."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from torq_byoc.accuracy.programs.tile_values import (
    Assembled,
    differing,
    element_addresses,
    elements_at,
    kept_elements,
)
from torq_byoc.codegen.tile_places import tile_place
from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.kernel import Layout, Placement, Region
from torq_byoc.npu_model.dtypes import DType


@pytest.mark.parametrize(
    "place",
    [
        Placement(100, Region((0, 2, 4), (2, 3, 5)), (40, 10, 2), DType.INT16),
        Placement(64, Region((1, 2, 4), (2, 4, 6)), (24, 3, 1), DType.INT8, (2, 2), (12, 6)),
    ],
    ids=["dense", "phased"],
)
def test_addresses_are_those_of_the_definition(place: Placement) -> None:
    region = Region(tuple(s + 1 for s in place.region.start), tuple(e - 1 for e in place.region.extent))
    found = element_addresses(place, region)
    for index in itertools.product(*map(range, region.extent)):
        steps = [i + s - p for i, s, p in zip(index, region.start, place.region.start, strict=True)]
        y, x = steps[1:]
        (py, px), (sy, sx) = place.phases, place.phase_strides
        wanted = place.address + steps[0] * place.strides[0]
        wanted += y % py * sy + y // py * place.strides[1] + x % px * sx + x // px * place.strides[2]
        assert found[index] == wanted


def test_of_stride_phases_maybe_the_first_ones_alone_are_there() -> None:
    region = Region((0, 0, 3, 4), (1, 2, 4, 3))
    for layout, wanted in [
        (Layout(), np.ones((4, 3), bool)),
        (Layout((2, 2)), np.ones((4, 3), bool)),
        (Layout((2, 2), (True, True)), np.outer([0, 1, 0, 1], [1, 0, 1]) > 0),
        (Layout((2, 2), (False, True)), np.outer([1, 1, 1, 1], [1, 0, 1]) > 0),
    ]:
        place = tile_place(0, (1, 2, 9, 9), DType.INT8, Region((0, 0, 2, 2), (1, 2, 6, 6)), layout)
        assert np.array_equal(np.broadcast_to(kept_elements(place, region), region.extent)[0, 1], wanted)


def test_elements_of_two_bytes_are_read_little_endian_and_beyond_memory_as_zero() -> None:
    memory = np.arange(8, dtype=np.uint8)
    found = elements_at(memory, np.array([1, 6, 7, -1]), np.dtype(np.int16))
    assert found.tolist() == [0x0201, 0x0706, 0x0007, 0x0000]


def test_bf16_may_differ_by_one_unit_and_integers_by_nothing() -> None:
    one = np.array([1.0, -0.0, np.nan], ml_dtypes.bfloat16)
    next_one = np.array([1.0078125, 0.0, np.nan], ml_dtypes.bfloat16)
    after_next = np.array([1.015625, 0.0, 1.0], ml_dtypes.bfloat16)
    assert differing(one, next_one).tolist() == [False, False, False]
    assert differing(one, after_next).tolist() == [True, False, True]
    assert differing(np.array([1, 2], np.int8), np.array([1, 3], np.int8)).tolist() == [False, True]


def _joined() -> Assembled:
    """x and its reshape joined with a constant."""
    builder = GraphBuilder("g")
    x = builder.input("x", (1, 2, 3), DType.INT8)
    flat = builder.emit("reshape", [x], (1, 6), DType.INT8, hint="flat")
    tail = builder.constant(np.array([[7, 8]], np.int8), "tail")
    builder.output(builder.emit("concat", [flat, tail], (1, 8), DType.INT8, attrs={"axis": 1}, hint="join"))
    graph = builder.finish()
    return Assembled.of(graph, {"x": np.arange(6, dtype=np.int8).reshape(1, 2, 3)})


def test_what_a_copy_never_made_comes_from_its_sources_through_aliases() -> None:
    made = _joined()
    name = made.graph.outputs[0]
    assert not made.known[name].any()
    made.complete(name)
    assert made.known[name].all()
    assert made.values[name].tolist() == [[0, 1, 2, 3, 4, 5, 7, 8]]


def test_a_tile_that_was_made_stays_when_the_rest_is_completed() -> None:
    made = _joined()
    name = made.graph.outputs[0]
    made.put(name, Region((0, 4), (1, 2)), np.array([[-1, -2]], np.int8))
    made.complete(name)
    assert made.values[name].tolist() == [[0, 1, 2, 3, -1, -2, 7, 8]]
    assert not made.disputed[name].any()


def test_elements_made_twice_differently_are_disputed() -> None:
    made = _joined()
    name = made.graph.outputs[0]
    made.put(name, Region((0, 0), (1, 3)), np.array([[1, 2, 3]], np.int8))
    made.put(name, Region((0, 1), (1, 3)), np.array([[2, 4, 5]], np.int8))
    assert made.disputed[name][0].tolist() == [False, False, True, False, False, False, False, False]
