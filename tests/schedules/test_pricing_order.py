"""What is expected of a node's candidates, and what the search finds that way with few of them priced."""

from __future__ import annotations

import math

import numpy as np
import pytest
from schedules.models import add_conv

from torq_byoc.kernels.builder import GraphBuilder
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.schedules.cost_model import CostWeights
from torq_byoc.schedules.decide import NodeSpace
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.pricing_order import PricingOrder, parts_of


def test_a_tile_is_divided_along_its_most_even_axes() -> None:
    parts = parts_of(np.array([[1, 12, 8, 56], [1, 4, 1, 1]]), (1, 4, 1, 1), slices=2)
    assert parts.axes.tolist()[0] == [2, 3], "12 channels in units of 4 make parts of 8 and 4"
    assert parts.shares.tolist() == [[0.5, 0.5], [1.0, math.inf]], "one unit is not divided"
    assert parts.rows.tolist()[0] == [56, 28]
    assert parts.axes[1, 0] == -1


def test_the_only_way_allowed_counts() -> None:
    parts = parts_of(np.array([[1, 12, 8, 56]]), (1, 4, 1, 1), slices=2, given=(1,))
    assert parts.axes[0, 0] == 1 and parts.shares[0].tolist() == [8 / 12, math.inf]
    whole = parts_of(np.array([[1, 12, 8, 56]]), (1, 4, 1, 1), slices=2, given=(None,))
    assert whole.axes[0, 0] == -1 and whole.shares[0].tolist() == [1.0, math.inf]


def order_of(*tiles: tuple[int, ...], slack: float = 0.0) -> PricingOrder:
    """Channels, rows, columns in steps of 1 on two slices: 1,000 cycles of work on one slice, 500 in every bound."""
    extents = np.array(tiles)
    numbers = np.array([tiles.index(tile) for tile in tiles])
    count = len(tiles)
    return PricingOrder(
        np.full(count, 500.0), 1000.0, np.full(count, slack), numbers, parts_of(extents, (1, 0, 0), slices=2)
    )


def test_what_a_tile_needs_is_expected_of_those_with_its_plane_and_with_its_rows() -> None:
    order = order_of((8, 4, 12), (2, 4, 12), (8, 6, 12), (8, 4, 56), (8, 4, 12))
    order.learn(0, {0: 800.0}, {0: 800.0})
    assert order.expected.tolist() == [800, 800, 800, 500, 800]
    assert order.least.tolist() == [800, 800, 500, 500, 800], "another plane may still turn out better"
    order.learn(2, {0: 600.0}, {0: 600.0})
    assert order.expected.tolist() == [800, 800, 600, 500, 800], "what is known of the plane itself counts for more"
    order.learn(1, {0: 700.0}, {0: 700.0})
    assert order.expected.tolist()[:2] == [800, 700], "what is known of the tile itself counts most"


def test_remainders_tell_nothing_about_other_tiles_with_such_rows() -> None:
    """Six of seven rows leave a tile of one, for which the slices take as long: of seven rows that is not expected."""
    order = order_of((8, 6, 7), (8, 7, 7))
    order.learn(0, {0: 900.0}, {0: 650.0})
    assert order.expected.tolist() == [900, 650]


def test_the_slices_may_take_as_much_longer_as_the_transfers_do() -> None:
    order = order_of((8, 4, 12), (2, 4, 12), slack=200.0)
    order.learn(0, {0: 800.0}, {0: 800.0})
    assert order.expected.tolist() == [600, 600]


@pytest.mark.parametrize("effort", [1, 2])
def test_a_convolution_gets_tiles_on_which_the_slices_lose_nothing(effort: int) -> None:
    """56 columns: parts of 8 whole rows fill the array; narrower tiles move fewer bytes but take 1.1 to 2.3 times as
    long, and there are hundreds of them."""
    builder = GraphBuilder("wide")
    builder.output(add_conv(builder, builder.input("image", (1, 256, 56, 56), DType.INT8), 256))
    graph = builder.finish()
    model = NodeModel(graph, graph.nodes[0], NpuConfig())
    choice = NodeSpace(model, Residency((False,), False), CostWeights(), effort).best(model.config.lram_usable)
    assert choice is not None
    whole = model.tile_cost(Region.whole(model.shape), None, model.streamed)
    assert choice.cost.cycles < 1.02 * whole.cycles / 2


@pytest.mark.parametrize("kernel", [1, 3])
def test_small_planes_are_not_cut(kernel: int) -> None:
    """7 x 7 pixels fill most of the lanes at once.  In two parts they take twice as long, which a price that scales the
    smaller part by its pixels does not see, and dozens of such tilings load as little before their first step."""
    builder = GraphBuilder("late")
    builder.output(add_conv(builder, builder.input("image", (1, 192, 7, 7), DType.INT8), 320, kernel))
    graph = builder.finish()
    model = NodeModel(graph, graph.nodes[0], NpuConfig())
    for residency in (Residency((True,), True), Residency((True,), False)):
        choice = NodeSpace(model, residency, CostWeights(), 1).best(model.config.lram_usable)
        assert choice is not None
        assert choice.decision.tile[2:] == (7, 7), residency


def test_a_tile_that_the_given_axis_does_not_divide_is_one_slice_s() -> None:
    parts = parts_of(np.array([[4, 8], [4, 16]]), (0, 8), 2, given=(1,))
    assert parts.shares.min(axis=1).tolist() == [1.0, 0.5]
    assert parts.axes[:, 0].tolist() == [-1, 1]
