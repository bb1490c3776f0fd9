"""A precision plan in the summary of a compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torq_byoc.quantize.planning.planner import Planned


def plan_facts(planned: Planned | None) -> dict[str, Any] | None:
    """What was planned, for which target, and what it reaches; None without a plan."""
    if planned is None:
        return None
    names = planned.plan.tensors
    return {
        "met": planned.met,
        "target": {"sqnr": planned.target.sqnr, "cosine": planned.target.cosine, "metric": planned.target.least},
        "reached": {"sqnr": planned.reached.sqnr, "cosine": planned.reached.cosine, "metric": planned.reached.metric},
        "int8": {"sqnr": planned.int8.sqnr, "cosine": planned.int8.cosine, "metric": planned.int8.metric},
        "int16_tensors": sorted(name for name in names if planned.plan.dtype_of(name) == "int16"),
        "other_ranges": sorted(name for name in names if planned.plan.dtype_of(name) == "int8"),
        "room": planned.plan.room,
        "bf16_operators": sorted(planned.plan.nodes),
        "rewrites": [
            {"name": each.name, "places": list(each.places), "strength": each.strength}
            for each in planned.plan.rewrites
        ],
        "expected_cycles": planned.cost.cycles,
        "expected_int8_cycles": planned.int8_cost.cycles,
    }
