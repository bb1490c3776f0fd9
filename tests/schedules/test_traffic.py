"""The closed forms of data movement against a walk over all tiles, and hand-computed costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from schedules.cases import CASES, Case
from schedules.models import add_conv, residual
from schedules.pipelines import walk

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.candidates import axis_extents, orders, split_axes, tilings
from torq_byoc.schedules.cost_model import CostWeights, estimate, flow_of, tile_kinds
from torq_byoc.schedules.decide import NodeSpace
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.record import NodeDecision
from torq_byoc.schedules.tiles import output_regions, split_between_slices
from torq_byoc.schedules.traffic import Depth, TilingTable

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
            layout = model.layout(index)
            for axis, phase, kept in zip((-2, -1), layout.phases, layout.kept, strict=True):
                if phase > 1:
                    extent[axis] = -(-extent[axis] // phase) * kept
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


@pytest.mark.parametrize("case", [case for case in CASES if case.shape], ids=lambda case: case.name)
def test_closed_form_of_the_smallest_tiles_equals_the_walk(case: Case) -> None:
    """Of many tiles in a row the kernel is asked about a few where what they read moves on evenly."""
    graph = case.graph()
    model = NodeModel(graph, graph.nodes[0], NpuConfig())
    rank = len(case.shape)
    for axis, step in enumerate(model.steps):
        if not step:
            continue
        tile = (*case.shape[:axis], min(step, case.shape[axis]), *case.shape[axis + 1 :])
        nbytes, loads = walked(model, NodeDecision(tile, tuple(range(rank)), None, 2))
        table = TilingTable(NodeModel(graph, graph.nodes[0], NpuConfig()), [tile])
        inputs = [i for i, stream in enumerate(model.streams) if stream.position is not None]
        streams = [table.stream(i, tuple(range(rank))) for i in inputs]
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


def product(rows: int, inner: int, columns: int) -> NodeModel:
    """x[rows, inner] int8 times constant weights."""
    rng = np.random.default_rng(2)
    builder = GraphBuilder("product")
    x = builder.input("x", (rows, inner), DType.INT8)
    w = builder.constant(rng.integers(-128, 128, (inner, columns)).astype(np.int8), "w")
    builder.output(builder.emit("matmul", [x, w], (rows, columns), DType.INT32))
    graph = builder.finish()
    return NodeModel(graph, graph.nodes[0], NpuConfig())


def test_an_operand_that_stays_may_do_with_one_buffer() -> None:
    """5 blocks of 64 columns, for each of them 10 tiles of 8 rows (the last has 5)."""
    model = product(77, 100, 320)
    moved = TilingTable(model, [(8, 64)]).traffic((1, 0), Residency((False,), False))
    assert (int(moved.refills[0]), float(moved.refilled[0])) == (4, 4 * 100 * 64)
    rows, columns, result = 800, 6400, 8 * 64 * 4
    assert [int(moved.demand(depth)[0]) for depth in Depth] == [
        2 * (rows + columns + result),
        2 * rows + columns + 2 * result,
        rows + columns + result,
    ]
    whole = TilingTable(model, [(8, 320)]).traffic((1, 0), Residency((False,), False))
    assert not whole.has_refills(), "the weights are loaded once"


def test_slices_and_transfers_wait_for_one_another_when_an_operand_with_one_buffer_changes() -> None:
    model = product(77, 100, 320)
    moved = TilingTable(model, [(8, 64)]).traffic((1, 0), Residency((False,), False))
    free, rate = CostWeights(0, 0, 0), model.config.dma_bytes_per_cycle
    two, _ = flow_of(model.config, moved, free, 100_000, 0, 0, Depth.ALL)
    waiting, _ = flow_of(model.config, moved, free, 100_000, 0, 0, Depth.MOVING)
    rows = float(moved.in_bytes[0]) - 4 * 6400
    assert waiting.work - two.work == pytest.approx(4 * (6400 + rows / 50) / rate), "4 blocks, each before a tile"
    assert waiting.loads - two.loads == pytest.approx(4 * 100_000 / 50), "4 last tiles run while no load may begin"


def test_a_long_product_loads_no_operand_more_often_than_the_memory_makes_it() -> None:
    """749x3072 times 3072x768 int8: 128 columns of weights stay, rows come tile by tile, 6 times in all."""
    model = product(749, 3072, 768)
    space = NodeSpace(model, Residency((False,), False), CostWeights(), effort=1)
    choice = space.best(model.config.lram_usable)
    assert choice is not None
    assert choice.cost.in_bytes < 1.05 * (6 * 749 * 3072 + 3072 * 768)
    compute = 749 * 3072 * 768 / 512
    assert choice.cost.cycles < 1.25 * compute
    assert choice.decision.order[0] == 1 and choice.decision.tile[1] == 128


def test_pipeline_hides_the_shorter_stages_when_double_buffered() -> None:
    graph = residual(size=16, channels=8, blocks=1)
    config = NpuConfig()
    model = NodeModel(graph, next(node for node in graph.nodes if node.name == "b0_a"), config)
    moved = TilingTable(model, [(1, 8, 4, 16)]).traffic((1, 2, 0, 3), Residency((False,), False))
    free = CostWeights(0, 0, 0)
    dma_in, dma_out = float(moved.in_bytes[0]) / config.dma_bytes_per_cycle, 2048 / config.dma_bytes_per_cycle
    serial, _ = flow_of(config, moved, free, 10_000, 0, 0, Depth.NONE)
    overlapped, constants = flow_of(config, moved, free, 10_000, 0, 0, Depth.ALL)
    assert float(serial.through[0]) == pytest.approx(dma_in + dma_out + 10_000)
    first = (float(moved.first_in[0]) + 2048 / 4) / config.dma_bytes_per_cycle
    assert float(overlapped.through[0]) == pytest.approx(first + 10_000), "compute-bound: first load, last store remain"
    weights = sum(stream.nbytes for stream in model.streams if stream.position is None)
    assert float(constants[0]) == pytest.approx(weights / config.dma_bytes_per_cycle)


def test_tiles_follow_one_another_each_with_its_own_work() -> None:
    """12 rows and 4 rows of 4 channels, twice: rows of the image come with the first channels."""
    graph = residual(size=16, channels=8, blocks=1)
    config = NpuConfig()
    model = NodeModel(graph, next(node for node in graph.nodes if node.name == "b0_a"), config)
    nothing, rate = Residency((False,), False), config.dma_bytes_per_cycle
    decision = NodeDecision((1, 4, 12, 16), (2, 1, 0, 3), None, 2)
    moved = TilingTable(model, [decision.tile]).traffic(decision.order, nothing)
    cost = estimate(model, decision, nothing, moved, CostWeights(0, 0, 0), Depth.ALL)
    tiles = output_regions(model.shape, decision)
    work = [model.tile_cost(tile, None, nothing) for tile in tiles]
    assert [tile.extent[2] for tile in tiles] == [12, 12, 4, 4]
    assert cost.slices == sum(one.cycles for one in work)
    image = float(moved.refilled[0])
    rest = (float(moved.in_bytes[0]) - float(moved.first_in[0]) - image) / (16 * 16 * 8 - 4 * 12 * 16)
    loads = [rest * tile.size + one.program_bytes for tile, one in zip(tiles, work, strict=True)]
    loads[0] = float(moved.first_in[0]) + work[0].program_bytes
    loads[2] += image
    stores = [tile.size / rate for tile in tiles]
    assert cost.cycles == pytest.approx(walk([load / rate for load in loads], [one.cycles for one in work], stores))


def test_a_tile_costs_what_it_costs_where_it_stands() -> None:
    """Kernel 3, stride 2: in the middle, 2 columns read 3 columns of a stride phase, and 7 such rows are more than the
    16 pixels that one vector takes; at the left border they read 2."""
    builder = GraphBuilder("wide")
    image = builder.input("image", (1, 32, 28, 28), DType.INT8)
    builder.output(add_conv(builder, image, 32, kernel=3, stride=2))
    graph = builder.finish()
    model, streamed = NodeModel(graph, graph.nodes[0], NpuConfig()), Residency((False,), False)
    border, middle = (model.tile_cost(Region((0, 0, 0, x), (1, 32, 7, 2)), 1, streamed) for x in (0, 4))
    assert middle.cycles == 2 * border.cycles


def test_tile_kinds_cover_the_output() -> None:
    kinds = tile_kinds((1, 10, 9, 7), (1, 4, 4, 7))
    found = {tile.extent: times for tile, times in kinds}
    assert found == {(1, 4, 4, 7): 4, (1, 4, 1, 7): 2, (1, 2, 4, 7): 2, (1, 2, 1, 7): 1}
    assert sum(tile.size * times for tile, times in kinds) == 10 * 9 * 7
    assert [tile.start for tile, _ in kinds] == [(0, 4, 4, 0), (0, 4, 8, 0), (0, 8, 4, 0), (0, 8, 8, 0)]


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
