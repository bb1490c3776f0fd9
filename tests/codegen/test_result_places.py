"""Results are placed once for all attempts that agree on them, and no attempt disturbs another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from codegen.infra import residual_graph

from torq_byoc.codegen import placement
from torq_byoc.codegen.build import build
from torq_byoc.codegen.lifetimes import Lifetime
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.placement import Arrangement, Early, Placement, Relief
from torq_byoc.codegen.programs import with_programs
from torq_byoc.codegen.result_places import ResultPlacer, lingering_results, swept_further
from torq_byoc.npu_model.presets import preset
from torq_byoc.schedules.plan import schedule

CONFIG = preset("lram64")
IN_ORDER, FILLING = Arrangement(), Arrangement(into_gaps=True)


class StoredResults:
    """Stored results by number: when they are needed last, until when they should stay, cells."""

    def __init__(self, results: Mapping[int, tuple[int, int, int]]) -> None:
        self.fixed = {buffer: Lifetime(end, end) for buffer, (end, _, _) in results.items()}
        self.lingering = {buffer: until for buffer, (_, until, _) in results.items()}
        self.cells = {buffer: cells for buffer, (_, _, cells) in results.items()}
        self.steps, self.cell = 1 + max(until for _, until, _ in results.values()), 8
        self.tiles_of: dict[int, list[int]] = {}


@pytest.fixture(scope="module")
def needs() -> Needs:
    """Those of a program whose results cross XRAM."""
    graph = residual_graph(1, channels=24)
    plan = schedule(graph, CONFIG, budget=0.8)
    improved, _ = run_passes(build(graph, plan, CONFIG), passes_for(plan, CONFIG))
    return Needs.of(with_programs(improved, graph, CONFIG), CONFIG)


def test_attempts_find_what_they_find_alone(needs: Needs) -> None:
    together = ResultPlacer(needs, CONFIG.lram_usable)
    for relief in (Relief(), Relief(punctual=frozenset({3})), Relief(swept=dict.fromkeys(range(4), 0)), Relief()):
        for arrangement in (IN_ORDER, FILLING, IN_ORDER):
            alone = Placement(ResultPlacer(needs, CONFIG.lram_usable), relief)
            again = Placement(together, relief)
            assert again.place(Early(), arrangement) == alone.place(Early(), arrangement) is not None
            assert again.places.offsets == alone.places.offsets
            assert again.places.lifetimes == alone.places.lifetimes


def test_no_result_lingers_in_a_step_that_is_swept(needs: Needs) -> None:
    assert lingering_results(needs, {}) == frozenset(needs.lingering)
    for step in range(needs.steps):
        staying = lingering_results(needs, {step: 0})
        over = {b for b, until in needs.lingering.items() if needs.fixed[b].end <= step <= until}
        assert staying == frozenset(needs.lingering) - over


def test_small_results_linger_where_large_ones_make_room() -> None:
    """A step with results of 40, 24 and 16 cells: first those of more than 20 go, then the last one, and what lingers
    in other steps stays."""
    needs = cast(Needs, StoredResults({0: (0, 2, 40), 1: (1, 3, 24), 2: (1, 2, 16), 3: (5, 6, 90)}))
    swept: Mapping[int, int] = {}
    left = []
    for _ in range(3):
        swept = swept_further(needs, swept, {2})
        left.append(sorted(lingering_results(needs, swept)))
    assert left == [[2, 3], [3], [3]]
    assert swept_further(needs, swept, {2}) == swept, "nothing lingers there any more"


def failed(needs: StoredResults, relief: Relief, step: int) -> Placement:
    """An attempt with no room for what the tile of step 0, 2, 4 ... loads."""
    needs.tiles_of = {0: list(range(0, needs.steps, 2))}
    attempt = Placement(ResultPlacer(cast(Needs, needs), 1024), relief)
    attempt.failed, attempt.failed_node = Lifetime(step, step), 0
    return attempt


def test_results_make_room_for_the_later_tiles_of_a_node_once_two_lacked_it() -> None:
    needs = StoredResults({step: (step, step, 8) for step in range(40)})
    once = failed(needs, Relief(), 4).relieved(linger_last=False)
    assert (set(once.swept), once.punctual) == ({4}, set())
    twice = failed(needs, once, 8).relieved(linger_last=False)
    assert (set(twice.swept), twice.punctual) == ({4, *range(8, 40, 2)}, set())


def test_early_loads_of_later_tiles_are_given_up_once_many_were() -> None:
    needs = StoredResults({step: (step, step, 8) for step in range(40)})
    relief = Relief()
    for tile in range(placement.OFTEN):
        relief = failed(needs, relief, 2 * tile).relieved(linger_last=True)
        assert (relief.punctual, relief.swept) == (set(range(0, 2 * tile + 1, 2)), {})
    assert failed(needs, relief, 20).relieved(linger_last=True).punctual == relief.punctual | set(range(20, 40, 2))


def test_results_without_room_name_when_they_are_needed(needs: Needs) -> None:
    largest = max(needs.fixed, key=lambda buffer: needs.cells[buffer])
    found = ResultPlacer(needs, (needs.cells[largest] - 1) * needs.cell).placed(frozenset(), largest_first=True)
    assert found.failed is not None
    assert any(life == found.failed for life in needs.fixed.values())
