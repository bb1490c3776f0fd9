"""The closed forms of data movement against a walk over all tiles, and hand-computed costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from schedules.cases import CASES, Case
from schedules.models import residual

from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.candidates import axis_extents, orders, split_axes, tilings
from torq_byoc.schedules.cost_model import CostWeights, Stages, stages_of, tile_kinds
from torq_byoc.schedules.node_model import NodeModel, Residency
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.tiles import output_regions, split_between_slices
from torq_byoc.schedules.traffic import TilingTable

STREAMED = ("conv2d", "matmul", "sum2", "maxpool", "reduce", "transpose", "broadcast", "resize_nearest")


def walked(model: NodeModel, decision: NodeDecision) -> tuple[int, int]:
    """Bytes and loads of all tensor inputs when an operand is reloaded only if its region changes."""
    held: dict[int, Region] = {}
    nbytes = loads = 0
    for output in output_regions(model.shape, decision):
        for index, region in enumerate(model.input_regions(output)):
            if held.get(index) == region:
                continue
            held[index] = region
            extent = list(region.extent)
            for axis, phase in zip((-2, -1), model.layout(index).phases, strict=True):
                if phase > 1:
                    extent[axis] = -(-extent[axis] // phase) * phase
            info = model.graph.tensors[model.node.inputs[model.inputs[index]]]
            nbytes += math.prod(extent) * info.dtype.size
            loads += 1
    return nbytes, loads


@pytest.mark.parametrize("case", [c for c in CASES if c.op in STREAMED and c.shape], ids=lambda case: case.name)
def test_closed_form_equals_the_walk_over_all_tiles(case: Case) -> None:
    graph = case.graph()
    model = NodeModel(graph, graph.nodes[0], NpuConfig())
    table = TilingTable(model, [case.tile])
    rank = len(case.shape)
    for order in (tuple(range(rank)), tuple(reversed(range(rank))), (*range(1, rank), 0)):
        nbytes, loads = walked(model, NodeDecision(case.tile, order, None, 2))
        streams = [table.stream(i, order) for i, stream in enumerate(model.streams) if stream.position is not None]
        assert sum(float(stream.nbytes[0]) for stream in streams) == pytest.approx(nbytes)
        assert sum(int(stream.loads[0]) for stream in streams) == loads


def test_loop_order_decides_what_is_stationary() -> None:
    graph = residual(size=16, channels=8, blocks=1)
    model = NodeModel(graph, next(node for node in graph.nodes if node.name == "b0_a"), NpuConfig())
    table = TilingTable(model, [(1, 4, 4, 16)])
    nothing = Residency((False,), False)
    weights = sum(stream.nbytes for stream in model.streams if stream.position is None)
    image = (5 + 6 + 6 + 5) * 16 * 8
    channels_outside = float(table.traffic((1, 2, 0, 3), nothing).in_bytes[0])
    rows_outside = float(table.traffic((2, 1, 0, 3), nothing).in_bytes[0])
    assert channels_outside == weights + 2 * image
    assert rows_outside == 4 * weights + image


def test_residents_take_no_transfers_and_no_tile_buffers() -> None:
    graph = residual(size=16, channels=8, blocks=1)
    model = NodeModel(graph, next(node for node in graph.nodes if node.name == "b0_a"), NpuConfig())
    table = TilingTable(model, [(1, 4, 4, 16)])
    moved = table.traffic((1, 2, 0, 3), Residency((True,), True))
    weights = sum(stream.nbytes for stream in model.streams if stream.position is None)
    assert float(moved.in_bytes[0]) == weights
    assert float(moved.out_bytes[0]) == 0 and int(moved.stores[0]) == 0
    assert int(moved.double[0]) == weights, "two buffers of half the weights each"


def test_pipeline_hides_the_shorter_stages_when_double_buffered() -> None:
    graph = residual(size=16, channels=8, blocks=1)
    config = NpuConfig()
    model = NodeModel(graph, next(node for node in graph.nodes if node.name == "b0_a"), config)
    moved = TilingTable(model, [(1, 8, 4, 16)]).traffic((1, 2, 0, 3), Residency((False,), False))
    free = CostWeights(0, 0, 0)
    dma_in, dma_out = float(moved.in_bytes[0]) / config.dma_bytes_per_cycle, 2048 / config.dma_bytes_per_cycle
    stages = stages_of(config, moved, free, 10_000, 0, 0)
    serial, overlapped = float(stages.alone(1)[0]), float(stages.alone(2)[0])
    assert serial == pytest.approx(dma_in + dma_out + 10_000)
    first = (float(moved.first_in[0]) + 2048 / 4) / config.dma_bytes_per_cycle
    assert overlapped == pytest.approx(first + 10_000), "compute-bound: first load and last store remain"


def test_a_node_with_room_beside_it_waits_for_half_of_its_constants() -> None:
    """40 cycles of transfers in, 10 of them for data, 100 of slices, 20 out: one step at a time and in four."""
    one = Stages(dma_in=40.0, slices=100.0, dma_out=20.0, fill=40.0, data_fill=10.0, drain=20.0, steps=1, overhead=3.0)
    assert float(one.alone(2)) == 163.0
    assert float(one.chained(2, room=True)) == 148.0, "15 of 30 cycles of constants have passed"
    assert float(one.chained(2, room=False)) == 163.0
    four = replace(one, fill=10.0, data_fill=2.0, drain=5.0, steps=4)
    assert float(four.alone(2)) == 118.0
    assert float(four.chained(2, room=True)) == 114.0
    bound = replace(one, dma_in=300.0, fill=300.0, data_fill=0.0, slices=20.0, dma_out=0.0, drain=0.0)
    assert float(bound.chained(2, room=True)) == 303.0, "the channel is busy for so long, wherever it begins"


def test_tile_kinds_cover_the_output() -> None:
    kinds = tile_kinds((1, 10, 9, 7), (1, 4, 4, 7))
    assert dict(kinds) == {(1, 4, 4, 7): 4, (1, 4, 1, 7): 2, (1, 2, 4, 7): 2, (1, 2, 1, 7): 1}
    assert sum(math.prod(extent) * times for extent, times in kinds) == 10 * 9 * 7


def test_axis_extents_are_balanced_multiples_of_the_step() -> None:
    assert axis_extents(10, 0) == [10]
    assert axis_extents(6, 4) == [6, 4]
    extents = axis_extents(100, 4)
    assert extents[0] == 100 and extents[-1] == 4 and 52 in extents
    assert all(extent % 4 == 0 for extent in extents)


def test_tilings_are_bounded_and_keep_the_extremes() -> None:
    found = tilings((4, 512, 64, 64), (1, 4, 1, 1), 400)
    assert len(found) <= 400 and (4, 512, 64, 64) in found
    assert len(tilings((2,) * 12, (1,) * 12, 400)) == 2**12, "two choices an axis cannot be thinned"


def test_orders_skip_exchanges_that_change_nothing() -> None:
    assert orders((1, 3, 4, 1), ("none", "weights", "image", "image")) == [(1, 2, 0, 3), (2, 1, 0, 3)]
    assert orders((2, 3, 4), ("same", "same", "same")) == [(0, 1, 2)]


def test_split_between_slices_is_even_aligned_and_complete() -> None:
    tile = Region((0, 8, 0), (1, 10, 7))
    parts = split_between_slices(tile, 1, 4, 2)
    assert parts == (Region((0, 8, 0), (1, 4, 7)), Region((0, 12, 0), (1, 6, 7)))
    assert split_between_slices(tile, 1, 16, 2) == (tile,)
    assert split_between_slices(tile, None, 0, 2) == (tile,)
    assert [part.extent[2] for part in split_between_slices(tile, 2, 1, 4)] == [1, 2, 2, 2]


def test_split_axes_prefer_even_halves() -> None:
    assert split_axes((1, 12, 7, 1), (1, 4, 1, 1), 2) == [2, 1]
    assert split_axes((1, 4, 1, 9), (1, 4, 1, 0), 2) == [None]
    assert split_axes((1, 12, 7, 1), (1, 4, 1, 1), 1) == [None]
