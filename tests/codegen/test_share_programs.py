"""Programs that LRAM holds already: found in fused groups, never where their place is taken in between."""

from __future__ import annotations

from codegen.infra import check_program
from codegen.passes.graphs import chain

from torq_byoc.codegen.generate import generate
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.schedules.plan import schedule


def test_a_band_runs_the_program_of_the_band_before() -> None:
    graph, config = chain(), NpuConfig()
    plan = schedule(graph, config)
    assert plan.groups and len(plan.groups[0].bands) > 2
    shared, apart = (generate(graph, plan, config, disabled=off) for off in ((), ("share-programs",)))
    (saved,) = (entry.saved for entry in shared.ledger if entry.name == "share-programs")
    loaded = [sum(layer.get("in_program", 0) for layer in g.layer_bytes.values()) for g in (shared, apart)]
    assert saved["in_bytes"] == loaded[1] - loaded[0] >= (len(plan.groups[0].bands) - 1) * 2048
    assert saved["out_bytes"] == 0


def test_results_stay_the_same() -> None:
    for budget in (0.3, 0.8):
        check_program(chain(300), NpuConfig(), budget=budget)
        check_program(chain(300), NpuConfig(), ("share-programs",), budget=budget)
