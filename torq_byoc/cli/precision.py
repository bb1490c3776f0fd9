"""What commands tell of a precision plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torq_byoc.quantize.planning.planner import Planned


def missed_target(planned: Planned | None) -> bool:
    """Whether a target was asked for and is not met."""
    return planned is not None and not planned.met


def plan_facts(planned: Planned | None) -> dict[str, Any] | None:
    """A plan for ``--json``; None without one."""
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
        "bf16_operators": sorted(planned.plan.nodes),
        "expected_cycles": planned.cost.cycles,
        "expected_int8_cycles": planned.int8_cost.cycles,
    }
