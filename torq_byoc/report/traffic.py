"""Bytes between XRAM and LRAM, and between the host and XRAM."""

from __future__ import annotations

from typing import Any

from torq_byoc.compiled_model import CompiledModel
from torq_byoc.npu_model.isa import Engine
from torq_byoc.report.measure import Measurement

_PURPOSE = {"weights": "weights", "program": "program", "nss": "program"}


def dma_traffic(measurement: Measurement) -> dict[str, int]:
    """Bytes and transfers by direction; ``weights + activations + program`` is the sum of both directions."""
    inward = {"weights": 0, "activations": 0, "program": 0}
    outward = transfers_in = transfers_out = 0
    for partition, timeline in measurement.parts():
        for event in timeline.events:
            if event.engine is Engine.DMA_IN:
                transfers_in += 1
                inward[_PURPOSE.get(partition.program.jobs[event.job].kind, "activations")] += event.nbytes
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


def xram_bytes(model: CompiledModel) -> int:
    """Constants, inputs, outputs and scratch of all programs."""
    total = 0
    for partition in model.partitions:
        program = partition.program
        total += sum(len(segment.data) for segment in program.segments) + program.arena_bytes
        total += sum(binding.nbytes for binding in (*program.inputs, *program.outputs))
    return total


def host_copies(model: CompiledModel) -> dict[str, int]:
    """Tensors and bytes that cross between host and NPU memory in one inference."""
    bindings = [b for p in model.partitions for b in (*p.program.inputs, *p.program.outputs)]
    return {"count": len(bindings), "bytes": sum(binding.nbytes for binding in bindings)}


def overlap(measurement: Measurement) -> dict[str, Any]:
    """How much runs at once: both slices, and transfers beside slices (fractions of busy time)."""
    timelines = measurement.timelines
    busy = sum(timeline.slice_busy_cycles for timeline in timelines)
    both = sum(timeline.both_slices_busy_cycles for timeline in timelines)
    transfers = sum(timeline.dma_busy_cycles for timeline in timelines)
    hidden = sum(timeline.hidden_dma_fraction * timeline.dma_busy_cycles for timeline in timelines)
    return {
        "both_slices_busy": both / busy if busy else 0.0,
        "dma_hidden": hidden / transfers if transfers else 1.0,
    }
