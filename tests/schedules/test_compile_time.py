"""What a schedule costs to find: nothing is priced or scheduled in TIR twice for layers that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from schedules.cases import CASES, Case
from schedules.models import residual

from torq_byoc.kernels.kernel import Region
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules import candidates, node_tiles, slice_costs
from torq_byoc.schedules.fusion.bands import BandCut
from torq_byoc.schedules.fusion.division import Division
from torq_byoc.schedules.fusion.search import PricedGroups
from torq_byoc.schedules.fusion.segment import Segment
from torq_byoc.schedules.node_model import NodeModel
from torq_byoc.schedules.node_operands import Residency
from torq_byoc.schedules.plan import schedule
from torq_byoc.schedules.residency import Planner, Storage
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
    assert counts[0] == counts[1]


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
        assert model.slices.step_cost(box, parts, streamed, None) == slice_costs.cost_of(jobs)


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
    priced: PricedGroups = {}
    schedule(graph, config, priced=priced)
    divided.clear()
    assert schedule(graph, config, budget=0.8, priced=priced) == alone
    assert alone.groups and sum(divided.values()) < first / 2
