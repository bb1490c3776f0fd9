"""The JSON object that ``torq compile --json`` and ``torq inspect --json`` print (docs/json-schema.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torq_byoc.compiled_model import CompiledModel, Layer, Partition
from torq_byoc.npu_model.isa import Engine
from torq_byoc.npu_model.timing import Event, Timeline, simulate_timeline

LOWER_BOUND_TERMS = ("compute", "dma_in", "dma_out")


def summarize(model: CompiledModel, profile: str = "reference") -> dict[str, Any]:
    """All figures of a compiled model under one timing profile.

    Args:
        model: freshly compiled or loaded; ``compile_seconds`` and the passes' seconds are null when loaded.
        profile: "reference", "shared" or "pessimistic".

    Returns:
        Plain data, ready for JSON.  Partitions run one after the other, so their cycles add up.
    """
    timelines = [simulate_timeline(partition.program, profile) for partition in model.partitions]
    cycles = _cycles(model, timelines)
    bound = lower_bound(model)
    total = cycles["total"]
    macs = model.facts.floor.macs
    config = model.partitions[0].program.config if model.partitions else None
    peak = _peak_macs(model)
    return {
        "model": model.facts.model,
        "hw": config.name if config else None,
        "precision": model.facts.precision,
        "profile": profile,
        "cycles": cycles,
        "latency_us": total / config.clock_mhz if config else 0.0,
        "macs": macs,
        "mac_utilisation": model.facts.floor.npu_macs / (peak * total) if total and peak else 0.0,
        "dma": _dma(model),
        "lower_bound_cycles": bound,
        "efficiency": bound["total"] / total if total else 0.0,
        "lram": {
            "capacity": config.lram_bytes if config else 0,
            "peak": max((partition.facts.lram_peak for partition in model.partitions), default=0),
        },
        "xram_bytes": sum(_xram_bytes(partition) for partition in model.partitions),
        "npu_ops": model.facts.npu_ops,
        "cpu_ops": [{"node": op.node, "op": op.op, "reason": op.reason} for op in model.facts.cpu_ops],
        "npu_mac_fraction": model.facts.floor.npu_macs / macs if macs else 1.0,
        "host_copies": _host_copies(model),
        "overlap": _overlap(timelines),
        "layers": [
            row
            for partition, timeline in zip(model.partitions, timelines, strict=True)
            for row in _layers(partition, timeline)
        ],
        "compile_seconds": sum(model.timings.values()) if model.timings else None,
        "stages": dict(model.timings),
        "passes": _passes(model),
        "notes": list(model.facts.notes),
    }


def lower_bound(model: CompiledModel) -> dict[str, int]:
    """Cycles below which no schedule of the whole model can come (design: section 8)."""
    if not model.partitions:
        return {name: 0 for name in (*LOWER_BOUND_TERMS, "total")}
    config = model.partitions[0].program.config
    floor = model.facts.floor
    rate = config.dma_bytes_per_cycle
    terms = {
        "compute": round(floor.mac_cycles / config.slices),
        "dma_in": round(floor.in_bytes / rate),
        "dma_out": round(floor.out_bytes / rate),
    }
    return {**terms, "total": max(terms.values())}


def _cycles(model: CompiledModel, timelines: Sequence[Timeline]) -> dict[str, Any]:
    slices = max((partition.program.config.slices for partition in model.partitions), default=0)
    return {
        "total": sum(timeline.total_cycles for timeline in timelines),
        "dma_in": sum(timeline.busy.get("dma_in", 0) for timeline in timelines),
        "dma_out": sum(timeline.busy.get("dma_out", 0) for timeline in timelines),
        "slices": [sum(timeline.busy.get(f"slice{n}", 0) for timeline in timelines) for n in range(slices)],
        "css": sum(timeline.busy.get("css", 0) for timeline in timelines),
        "host_us": None if model.facts.cpu_ops else 0,
    }


def _peak_macs(model: CompiledModel) -> float:
    """MACs a cycle of all slices at the mix of types that the model uses."""
    floor = model.facts.floor
    slices = model.partitions[0].program.config.slices if model.partitions else 0
    return floor.macs / floor.mac_cycles * slices if floor.mac_cycles else 0.0


def _dma(model: CompiledModel) -> dict[str, Any]:
    inward: dict[str, int] = {"weights": 0, "activations": 0, "program": 0}
    outward = transfers_in = transfers_out = 0
    for partition in model.partitions:
        program = partition.program
        for event in simulate_timeline(program).events:
            kind = program.jobs[event.job].kind
            if event.engine is Engine.DMA_IN:
                transfers_in += 1
                inward[_IN_KINDS.get(kind, "activations")] += event.nbytes
            elif event.engine is Engine.DMA_OUT:
                transfers_out += 1
                outward += event.nbytes
    return {
        "in_bytes": sum(inward.values()),
        "out_bytes": outward,
        "in_transfers": transfers_in,
        "out_transfers": transfers_out,
        "weights": inward["weights"],
        "activations": inward["activations"] + outward,
        "program": inward["program"],
    }


_IN_KINDS = {"weights": "weights", "program": "program", "nss": "program"}


def _xram_bytes(partition: Partition) -> int:
    program = partition.program
    constants = sum(len(segment.data) for segment in program.segments)
    bindings = sum(binding.nbytes for binding in (*program.inputs, *program.outputs))
    return constants + bindings + program.arena_bytes


def _host_copies(model: CompiledModel) -> dict[str, int]:
    """Tensors and bytes that cross between host and NPU memory in one inference."""
    bindings = [b for p in model.partitions for b in (*p.program.inputs, *p.program.outputs)]
    return {"count": len(bindings), "bytes": sum(binding.nbytes for binding in bindings)}


def _overlap(timelines: Sequence[Timeline]) -> dict[str, float]:
    """How much runs at once: both slices, and transfers beside slices."""
    busy = sum(timeline.slice_busy_cycles for timeline in timelines)
    both = sum(timeline.both_slices_busy_cycles for timeline in timelines)
    transfers = sum(timeline.dma_busy_cycles for timeline in timelines)
    hidden = sum(timeline.hidden_dma_fraction * timeline.dma_busy_cycles for timeline in timelines)
    return {
        "both_slices_busy": both / busy if busy else 0.0,
        "dma_hidden": hidden / transfers if transfers else 1.0,
    }


def _layers(partition: Partition, timeline: Timeline) -> list[dict[str, Any]]:
    program = partition.program
    events: dict[str, list[Event]] = {}
    for event in timeline.events:
        events.setdefault(program.jobs[event.job].label, []).append(event)
    peak = program.config.alu_groups * program.config.alu_lanes * program.config.slices
    return [_layer(layer, events.get(layer.node, []), peak) for layer in partition.facts.layers]


def _layer(layer: Layer, events: Sequence[Event], peak: int) -> dict[str, Any]:
    busy: dict[str, int] = {}
    for event in events:
        busy[event.track] = busy.get(event.track, 0) + event.end - event.start
    start = min((event.start for event in events), default=0)
    end = max((event.end for event in events), default=0)
    engines = {
        "dma_in": busy.get("dma_in", 0),
        "dma_out": busy.get("dma_out", 0),
        "slices": max((value for name, value in busy.items() if name.startswith("slice")), default=0),
    }
    cycles = max(engines.values())
    return {
        "node": layer.origin or layer.node,
        "op": layer.op,
        "kernel": layer.op,
        "tiles": layer.tiles,
        "cycles": cycles,
        "start": start,
        "end": end,
        "bound_by": max(engines, key=lambda name: engines[name]) if cycles else "none",
        "utilisation": layer.macs / (peak * cycles) if cycles else 0.0,
        "macs": layer.macs,
        "resident": layer.resident,
        "bytes": dict(layer.bytes),
    }


def _passes(model: CompiledModel) -> list[dict[str, Any]]:
    """Savings of each pass over all partitions."""
    saved: dict[str, dict[str, int]] = {}
    for partition in model.partitions:
        for name, savings in partition.facts.passes:
            entry = saved.setdefault(name, {})
            for key, value in savings.items():
                entry[key] = entry.get(key, 0) + value
    seconds: Mapping[str, float] = model.timings
    return [{"name": name, "seconds": seconds.get(f"pass:{name}"), "saved": savings} for name, savings in saved.items()]
