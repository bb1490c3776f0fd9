"""The JSON object that ``torq compile --json`` and ``torq inspect --json`` print (docs/json-schema.md)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from torq_byoc.compiled_model import CompiledModel
from torq_byoc.in_order_bound import in_order_cycles
from torq_byoc.report.layers import layer_rows
from torq_byoc.report.levels import level_costs
from torq_byoc.report.measure import Measurement, measure
from torq_byoc.report.precision_plan import plan_facts
from torq_byoc.report.traffic import dma_traffic, host_copies, overlap, xram_bytes

LOWER_BOUND_TERMS = ("compute", "dma_in", "dma_out")


def headline(model: CompiledModel, profile: str = "reference") -> dict[str, Any]:
    """Which model on which machine under which assumptions, and how long it takes."""
    return _headline(measure(model, profile))


def summarize(model: CompiledModel, profile: str = "reference") -> dict[str, Any]:
    """All figures of a compiled model under one timing profile.

    Args:
        model: freshly compiled or loaded; ``compile_seconds`` and the passes' seconds are null when loaded.
        profile: "reference", "shared" or "pessimistic".

    Returns:
        Plain data, ready for JSON.  Partitions run one after the other, so their cycles add up.
    """
    return summary_of(measure(model, profile))


def summary_of(measurement: Measurement) -> dict[str, Any]:
    """``summarize`` for a model whose timelines are there already."""
    model = measurement.model
    bound = lower_bound(model)
    total, config = measurement.total_cycles, measurement.config
    floor = model.facts.floor
    peak = _peak_macs(measurement)
    return {
        **_headline(measurement),
        "macs": floor.macs,
        "mac_utilisation": floor.npu_macs / (peak * total) if total and peak else 0.0,
        "dma": dma_traffic(measurement),
        "lower_bound_cycles": bound,
        "efficiency": bound["total"] / total if total else 0.0,
        "in_order_bound_cycles": in_order_bound(model, bound["total"]),
        "bound_by": _bound_by(measurement),
        "lram": {
            "capacity": config.lram_bytes if config else 0,
            "peak": max((use.peak for use in measurement.lram), default=0),
            "top": max((partition.facts.lram_peak for partition in model.partitions), default=0),
        },
        "xram_bytes": xram_bytes(model),
        "npu_ops": model.facts.npu_ops,
        "cpu_ops": [{"node": op.node, "op": op.op, "reason": op.reason} for op in model.facts.cpu_ops],
        "npu_mac_fraction": floor.npu_macs / floor.macs if floor.macs else 1.0,
        "host_copies": host_copies(model),
        "overlap": overlap(measurement),
        "layers": layer_rows(measurement),
        "levels": level_costs(measurement),
        "compile_seconds": sum(model.timings.values()) if model.timings else None,
        "stages": dict(model.timings),
        "passes": _passes(model),
        "inputs": [_tensor(spec) for spec in model.facts.inputs],
        "outputs": [_tensor(spec) for spec in model.facts.outputs],
        "calibration": asdict(model.calibration) if model.calibration else None,
        "plan": plan_facts(model.planned),
        "notes": list(model.facts.notes),
        "warnings": list(model.facts.warnings),
    }


def lower_bound(model: CompiledModel) -> dict[str, int]:
    """Cycles below which no schedule of the whole model can come (design: section 8)."""
    if not model.partitions:
        return {name: 0 for name in (*LOWER_BOUND_TERMS, "total")}
    config = model.partitions[0].program.config
    floor = model.facts.floor
    rate = config.dma_bytes_per_cycle
    terms = {
        "compute": _whole_cycles(floor.mac_cycles / config.slices),
        "dma_in": _whole_cycles(floor.in_bytes / rate),
        "dma_out": _whole_cycles(floor.out_bytes / rate),
    }
    return {**terms, "total": max(terms.values())}


def in_order_bound(model: CompiledModel, least: int) -> int:
    """Cycles below which no program that runs the operators in their order can come; at least the lower bound."""
    if not model.partitions:
        return 0
    config = model.partitions[0].program.config
    operators = [(cycles / config.slices, nbytes) for cycles, nbytes in model.facts.floor.operators]
    found = in_order_cycles(operators, config.lram_usable, config.dma_bytes_per_cycle)
    return max(least, _whole_cycles(found))


def _whole_cycles(cycles: float) -> int:
    """A bound in cycles that a machine can take: a started one counts, rounding errors of the division do not."""
    return math.ceil(round(cycles, 6))


def _headline(measurement: Measurement) -> dict[str, Any]:
    facts, config, total = measurement.model.facts, measurement.config, measurement.total_cycles
    slices = config.slices if config else 0
    return {
        "model": facts.model,
        "hw": config.name if config else None,
        "precision": facts.precision,
        "profile": measurement.profile,
        "cycles": {
            "total": total,
            "dma_in": measurement.busy("dma_in"),
            "dma_out": measurement.busy("dma_out"),
            "slices": [measurement.busy(f"slice{number}") for number in range(slices)],
            "css": measurement.busy("css"),
            "host_us": 0.0 if facts.direct else None,
        },
        "latency_us": total / config.clock_mhz if config else 0.0,
    }


def _bound_by(measurement: Measurement) -> str:
    """The engine that is busy longest."""
    slices = measurement.config.slices if measurement.config else 0
    busy = {name: measurement.busy(name) for name in ("dma_in", "dma_out")}
    busy["slices"] = max((measurement.busy(f"slice{number}") for number in range(slices)), default=0)
    return max(busy, key=lambda name: busy[name]) if measurement.total_cycles else "none"


def _peak_macs(measurement: Measurement) -> float:
    """MACs a cycle of all slices at the mix of types that the model uses."""
    floor = measurement.model.facts.floor
    slices = measurement.config.slices if measurement.config else 0
    return floor.macs / floor.mac_cycles * slices if floor.mac_cycles else 0.0


def _tensor(spec: Any) -> dict[str, Any]:
    return {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype}


def _passes(model: CompiledModel) -> list[dict[str, Any]]:
    """Savings of each pass over all partitions."""
    saved: dict[str, dict[str, int]] = {}
    for partition in model.partitions:
        for name, savings in partition.facts.passes:
            entry = saved.setdefault(name, {})
            for key, value in savings.items():
                entry[key] = entry.get(key, 0) + value
    seconds = model.pass_seconds
    return [{"name": name, "seconds": seconds.get(name), "saved": savings} for name, savings in saved.items()]
