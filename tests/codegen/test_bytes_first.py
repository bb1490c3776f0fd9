"""Orders by bytes: loads are early where bytes allow, whatever places the others took."""

from __future__ import annotations

import dataclasses

import pytest
from codegen.infra import chain, residual_graph

from torq_byoc.codegen import arrangements, bytes_first
from torq_byoc.codegen.build import build
from torq_byoc.codegen.bytes_first import Fit, orders_by_bytes, slots_by_bytes
from torq_byoc.codegen.clean_copies import clean_copies
from torq_byoc.codegen.generate import generate
from torq_byoc.codegen.lifetimes import Fetch, Lifetime
from torq_byoc.codegen.load_queue import InOrder
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.placement import Early
from torq_byoc.codegen.prefetch import PUNCTUAL
from torq_byoc.codegen.programs import with_programs
from torq_byoc.codegen.result_places import Places, ResultPlacer
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.presets import preset
from torq_byoc.schedules.plan import schedule

CONFIG = preset("lram64")
ROOMY = 1 << 20


@pytest.fixture(scope="module", params=range(3))
def needs(request: pytest.FixtureRequest) -> Needs:
    graph = residual_graph(request.param, channels=24)
    plan = schedule(graph, CONFIG, budget=0.8)
    improved, _ = run_passes(build(graph, plan, CONFIG), passes_for(plan, CONFIG))
    program = with_programs(improved, graph, CONFIG)
    return Needs.of(program, CONFIG, clean_copies(program))


def three_loads(needs: Needs, sizes: tuple[int, int, int]) -> Needs:
    """Three buffers of so many cells, used in steps 2, 3 and 4 of five, and a result that is there in step 1."""
    loads = [
        (Fetch(buffer, step, step, (), 0, 0, 0), 0) for buffer, step in ((0, 2), (1, 3), (2, 4))
    ]  # no cycles: all of them may be issued at once
    return dataclasses.replace(
        needs,
        program=needs.program.with_ops(()),
        copies={},
        steps=5,
        cells=(*sizes, 6),
        fetches=tuple(loads),
        fixed={3: Lifetime(1, 1)},
        lingering={},
    )


@pytest.mark.parametrize(
    ("capacity", "slots"),
    [
        (16, {0: 0, 1: 0, 2: 0}),
        (15, {0: 0, 1: 0, 2: 2}),  # 6 + 4 + 3 + 3 cells in step 1
        (10, {0: 0, 1: 2, 2: 2}),
        (7, {0: 2, 1: 2, 2: 3}),
        (1, {0: 2, 1: 3, 2: 4}),  # room for none: each when it is needed
    ],
)
def test_a_load_is_issued_as_soon_as_its_bytes_find_room(
    needs: Needs, capacity: int, slots: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytes_first, "FillingGaps", lambda *_: InOrder())
    few = three_loads(needs, (4, 3, 3))
    results = Places.none(few, ROOMY)
    results.take(3, few.fixed[3], 0, 6)
    found = slots_by_bytes(few, results, capacity, Early())
    assert found.issued == slots
    assert found.lifetimes == {3: Lifetime(1, 1), **{b: Lifetime(s, b + 2) for b, s in slots.items()}}


def test_loads_that_may_not_be_early_are_not(needs: Needs) -> None:
    results = ResultPlacer(needs, CONFIG.lram_usable).placed(frozenset(), largest_first=True)
    found = slots_by_bytes(needs, results.places, ROOMY, PUNCTUAL)
    first_uses = {fetch.buffer: fetch.first_use for fetch, _ in needs.fetches}
    assert found.issued and all(slot == first_uses[buffer] for buffer, slot in found.issued.items())


def test_no_result_lingers_without_double_buffering(needs: Needs) -> None:
    orders = list(orders_by_bytes(ResultPlacer(needs, CONFIG.lram_usable), PUNCTUAL))
    assert needs.lingering and orders
    assert all(order.lifetimes[buffer] == life for order in orders for buffer, life in needs.fixed.items())


def test_what_is_there_already_is_not_loaded(needs: Needs) -> None:
    """Of two nodes that load the same, the later one finds it in LRAM; its bytes stay alive for it."""
    results = ResultPlacer(needs, CONFIG.lram_usable).placed(frozenset(), largest_first=True)
    found = slots_by_bytes(needs, results.places, ROOMY, Early())
    assert set(found.issued) | set(found.reused) == {fetch.buffer for fetch, _ in needs.fetches}
    for fetch, _ in needs.fetches:
        holder = found.reused.get(fetch.buffer, fetch.buffer)
        assert found.lifetimes[holder].start <= fetch.first_use and fetch.last_use <= found.lifetimes[holder].end
        if holder != fetch.buffer:
            assert needs.copies[holder].content == needs.copies[fetch.buffer].content


def test_long_programs_are_not_searched_and_fitted_in_few_ways(needs: Needs, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = len(needs.program.ops)
    monkeypatch.setattr(bytes_first, "allocate", None)
    monkeypatch.setattr(bytes_first, "SEARCHED_OPS", ops - 1)
    monkeypatch.setattr(bytes_first, "FITS", (Fit(1.0, 16, ops), Fit(1.0, 16, ops - 1)))
    assert len(list(orders_by_bytes(ResultPlacer(needs, CONFIG.lram_usable), Early()))) == 1


@pytest.mark.parametrize(
    ("way", "channels", "extent", "kib", "gain"),
    [
        ("_searched", 16, 40, 24, 0.85),
        ("_searched", 24, 32, 32, 0.87),
        ("_fitted", 32, 32, 24, 0.9),
        ("_fitted", 48, 48, 32, 0.97),
    ],
)
def test_loads_wait_less_than_with_places_by_use(
    way: str, channels: int, extent: int, kib: int, gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six convolutions whose tensors fill a small LRAM."""
    graph, crowded = chain(6, channels, extent), dataclasses.replace(NpuConfig(), lram_bytes=kib << 10)
    plan = schedule(graph, crowded)
    for other in {"_searched", "_fitted"} - {way}:
        monkeypatch.setattr(bytes_first, other, lambda *_: None)
    by_bytes = generate(graph, plan, crowded).timeline.total_cycles
    monkeypatch.setattr(arrangements, "orders_by_bytes", lambda *_: ())
    assert by_bytes < gain * generate(graph, plan, crowded).timeline.total_cycles
