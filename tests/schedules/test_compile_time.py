"""What a schedule costs to find: nothing is priced or scheduled in TIR twice for layers that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from schedules.cases import CASES, Case
from schedules.models import all_segments, residual, strided

from torq_byoc.kernels.graph import Node, OpGraph
from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules import candidates, node_tiles, slice_costs
from torq_byoc.schedules.fusion.bands import BandCut, band, band_count
from torq_byoc.schedules.fusion.division import Division
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.fusion.shared_ends import planned_band
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.priced import Priced
from torq_byoc.schedules.residency import Planner, Storage
from torq_byoc.schedules.signature import exact_signature, signature
from torq_byoc.schedules.tiles import split_between_slices

CONFIG = NpuConfig()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts slice programs that are made to be priced, and TIR functions that are scheduled; nothing is known yet."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def counted_call(*arguments: Any) -> Any:
            counted[name] += 1
            return function(*arguments)

        return counted_call

    monkeypatch.setattr(slice_costs, "tasks_of", counting("priced", slice_costs.tasks_of))
    monkeypatch.setattr(node_tiles, "read_back", counting("scheduled", node_tiles.read_back))
    monkeypatch.setattr(node_tiles, "_read_back", {})
    slice_costs.known_costs.cache_clear()
    yield counted
    slice_costs.known_costs.cache_clear()


@pytest.mark.parametrize("kib", [512, 48], ids=["roomy", "crowded"])
def test_more_layers_of_a_kind_need_no_more_pricing(work: Counter[str], kib: int) -> None:
    config = replace(CONFIG, name=f"lram{kib}", lram_bytes=kib * 1024)
    counts = []
    for blocks in (6, 12):
        work.clear()
        slice_costs.known_costs.cache_clear()
        node_tiles._read_back.clear()
        schedule(residual(blocks=blocks), config)
        counts.append(dict(work))
    assert counts[0]["priced"] > 0 and counts[0]["scheduled"] > 0
    assert all(counts[1][kind] <= counts[0][kind] for kind in counts[0])


def other_numbers(node: Node, layer: int) -> Node:
    """A node with another shift, zero point, border and weights, as each layer of a quantized network has."""
    attrs = {name: value + layer if name == "pad_value" else value for name, value in node.attrs.items()}
    if node.op == "sum2" and len(set(map(abs, attrs["weights"]))) > 1:
        attrs["weights"] = (attrs["weights"][0] + layer, attrs["weights"][1])
    rescale = node.rescale
    if rescale is not None:
        rescale = replace(rescale, shift=rescale.shift + layer % 3, zero_point=rescale.zero_point - layer)
    return replace(node, attrs=attrs, rescale=rescale)


def test_layers_that_differ_in_numbers_alone_are_priced_once(work: Counter[str]) -> None:
    graph = residual(blocks=6)
    expected, alike = schedule(graph, CONFIG), Counter(work)
    work.clear()
    slice_costs.known_costs.cache_clear()
    node_tiles._read_back.clear()
    nodes = tuple(other_numbers(node, layer) for layer, node in enumerate(graph.nodes))
    assert schedule(replace(graph, nodes=nodes), CONFIG) == expected
    assert work == alike


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nodes_of_one_signature_cost_the_same(case: Case) -> None:
    graph = case.graph()
    (node,) = graph.nodes
    other = other_numbers(node, 2)
    if signature(graph, other) != signature(graph, node):
        assert "pad_value" in node.attrs and node.op != "conv2d"  # pools may leave out what their border says
        return
    if node.rescale is not None:
        assert exact_signature(graph, other) != exact_signature(graph, node)
    costs = []
    for one in (node, other):
        slice_costs.known_costs.cache_clear()
        model = NodeModel(replace(graph, nodes=(one,)), one, CONFIG)
        axes = candidates.split_axes(model.shape, model.steps, CONFIG.slices, 4)
        costs.append([model.tile_cost(Region.whole(model.shape), axis, model.streamed) for axis in axes])
    assert costs[0] == costs[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tiles_made_of_smaller_ones_are_cut_as_if_the_kernel_was_asked_for_each(case: Case) -> None:
    """How operands divide does not depend on which tiles were asked for before."""
    graph = case.graph()
    (node,) = graph.nodes
    known = NodeModel(graph, node, CONFIG)
    for axis, step in enumerate(known.steps):
        for tile in reversed(candidates.axis_extents(known.shape[axis], step)):
            fresh = NodeModel(graph, node, CONFIG)
            for stream in range(len(known.streams)):
                assert known.cut(stream, axis, tile) == fresh.cut(stream, axis, tile)


@pytest.mark.parametrize("case", [case for case in CASES if case.shape], ids=lambda case: case.name)
def test_an_operand_is_whole_for_all_tiles_where_it_is_for_each(case: Case) -> None:
    """The first and the last tile tell: here all tiles of a step are asked for."""
    graph = case.graph()
    (node,) = graph.nodes
    model = NodeModel(graph, node, CONFIG)
    for axis, step in enumerate(model.steps):
        starts = range(0, model.shape[axis], step) if 0 < step < model.shape[axis] else ()
        boxes = [
            Region(
                tuple(start if a == axis else 0 for a in range(len(model.shape))),
                tuple(min(step, n - start) if a == axis else n for a, n in enumerate(model.shape)),
            )
            for start in starts
        ]
        for index in range(len(model.inputs) if boxes else 0):
            moves = len({model.input_region(index, box) for box in boxes}) > 1 and model.streams[index].nbytes > 0
            assert model.moves(index, axis) == moves


@pytest.mark.parametrize("graph", [residual(size=13), strided()], ids=["residual", "strided"])
def test_bands_go_on_from_those_of_the_segment_without_the_first_node(graph: OpGraph) -> None:
    """Whichever segments were asked for before, a band is the one that is carried back from its results alone."""
    segments = all_segments(graph, CONFIG)
    assert any(segment.end is not None for segment in segments)
    for segment in segments:

        def reads(position: int, box: Region, models: Sequence[NodeModel] = segment.models) -> Sequence[Region]:
            return models[position].input_regions(box)

        for cut in (BandCut(2, 4), BandCut(2, 1), BandCut(1, 4), BandCut(2, 2, outer=1)):
            for index in range(band_count(segment, cut)):
                found, expected = planned_band(segment, cut, index), band(segment, cut, index, reads)
                assert (found is None) == (expected is None)
                if found is not None and expected is not None:
                    assert (found.outputs, found.held, found.steps) == (expected.outputs, expected.held, expected.steps)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_slices_with_parts_of_equal_extents_cost_what_each_of_them_costs(case: Case) -> None:
    """The cost of a tile is found from one part of each kind; here from every part."""
    graph = case.graph()
    (node,) = graph.nodes
    model = NodeModel(graph, node, CONFIG)
    streamed = Residency((False,) * len(model.inputs), False)
    box = Region((0,) * len(model.shape), tuple(model.shape))
    for axis in candidates.split_axes(box.extent, model.steps, CONFIG.slices, 4):
        parts = split_between_slices(box, axis, 0 if axis is None else model.steps[axis], CONFIG.slices)
        placements = model.slices._placements(box, streamed, None)
        jobs = [model.slices._tasks(part, None, *placements) for part in parts]
        expected = slice_costs.side_by_side([slice_costs.cost_of(tasks) for tasks in jobs])
        assert model.slices.step_cost(box, parts, streamed, None) == expected


def test_a_planner_asks_for_no_price_twice() -> None:
    """Whatever is tried, a node beside the same residents has the same price."""
    rng = np.random.default_rng(5)
    storages = [
        Storage((f"t{number}",), int(size), first, min(first + int(length), 11), 1)
        for number, (first, size, length) in enumerate(
            zip(range(10), rng.integers(100, 900, 10), rng.integers(1, 9, 10), strict=True)
        )
    ]
    sizes = {storage.name: storage.nbytes for storage in storages}
    asked: Counter[tuple[int, frozenset[str]]] = Counter()

    def price(node: int, live: frozenset[str]) -> tuple[float, float] | None:
        asked[node, live] += 1
        held = sum(sizes[name] for name in live)
        return None if held > 1500 else (1000.0 + node - 0.3 * held, float(held))

    planner = Planner(storages, 12, price, {})
    chosen = planner.run(4)
    assert chosen and max(asked.values()) == 1
    assert all(sum(sizes[name] for name in live) <= 1500 for live in planner.live)


def test_another_budget_makes_use_of_what_is_known_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation that must plan with less memory divides no group again, and finds what it would find alone."""
    config = replace(CONFIG, name="lram48", lram_bytes=48 * 1024)
    graph = residual(blocks=3)
    divided: Counter[tuple[int, BandCut]] = Counter()
    divide = Division.of

    def counted(segment: Segment, cut: BandCut) -> Division | None:
        divided[id(segment), cut] += 1
        return divide(segment, cut)

    monkeypatch.setattr(Division, "of", counted)
    alone = schedule(graph, config, budget=0.8)
    first = sum(divided.values())
    priced = Priced()
    schedule(graph, config, priced=priced)
    divided.clear()
    assert schedule(graph, config, budget=0.8, priced=priced) == alone
    assert alone.groups and sum(divided.values()) < first / 2
