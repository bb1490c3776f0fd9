"""Results are placed once for all attempts that agree on them, and no attempt disturbs another."""

from __future__ import annotations

import pytest
from codegen.infra import residual_graph

from torq_byoc.codegen.build import build
from torq_byoc.codegen.needs import Needs
from torq_byoc.codegen.passes import passes_for, run_passes
from torq_byoc.codegen.placement import Arrangement, Early, Placement, Relief
from torq_byoc.codegen.programs import with_programs
from torq_byoc.codegen.result_places import ResultPlacer, lingering_results
from torq_byoc.npu_model.presets import preset
from torq_byoc.schedules.plan import schedule

CONFIG = preset("lram64")
IN_ORDER, FILLING = Arrangement(), Arrangement(into_gaps=True)


@pytest.fixture(scope="module")
def needs() -> Needs:
    """Those of a program whose results cross XRAM."""
    graph = residual_graph(1, channels=24)
    plan = schedule(graph, CONFIG, budget=0.8)
    improved, _ = run_passes(build(graph, plan, CONFIG), passes_for(plan, CONFIG))
    return Needs.of(with_programs(improved, graph, CONFIG), CONFIG)


def test_attempts_find_what_they_find_alone(needs: Needs) -> None:
    together = ResultPlacer(needs, CONFIG.lram_usable)
    for relief in (Relief(), Relief(punctual=frozenset({3})), Relief(swept=frozenset(range(4))), Relief()):
        for arrangement in (IN_ORDER, FILLING, IN_ORDER):
            alone = Placement(ResultPlacer(needs, CONFIG.lram_usable), relief)
            again = Placement(together, relief)
            assert again.place(Early(), arrangement) == alone.place(Early(), arrangement) is not None
            assert again.places.offsets == alone.places.offsets
            assert again.places.lifetimes == alone.places.lifetimes


def test_no_result_lingers_in_a_step_that_is_swept(needs: Needs) -> None:
    assert lingering_results(needs, frozenset()) == frozenset(needs.lingering)
    for step in range(needs.steps):
        staying = lingering_results(needs, frozenset({step}))
        over = {b for b, until in needs.lingering.items() if needs.fixed[b].end <= step <= until}
        assert staying == frozenset(needs.lingering) - over


def test_results_without_room_name_when_they_are_needed(needs: Needs) -> None:
    largest = max(needs.fixed, key=lambda buffer: needs.cells[buffer])
    found = ResultPlacer(needs, (needs.cells[largest] - 1) * needs.cell).placed(frozenset(), largest_first=True)
    assert found.failed is not None
    assert any(life == found.failed for life in needs.fixed.values())
