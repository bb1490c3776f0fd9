"""What every level of IR costs, so that a reader sees where bytes and cycles appear."""

from __future__ import annotations

from typing import Any

from torq_byoc.npu_model.isa import Engine
from torq_byoc.npu_model.trace import trace
from torq_byoc.report.layers import directions
from torq_byoc.report.measure import Measurement


def level_costs(measurement: Measurement) -> dict[str, dict[str, Any]]:
    """One cost line a level (design: tensor, scheduled, torq_hl, torq_hw)."""
    model = measurement.model
    floor = model.facts.floor
    layers = [layer for partition in model.partitions for layer in partition.facts.layers]
    moved = [directions(layer.bytes) for layer in layers]
    return {
        "tensor": {"macs": floor.macs, "in_bytes": floor.in_bytes, "out_bytes": floor.out_bytes},
        "scheduled": {
            "estimated_cycles": round(sum(layer.estimate for layer in layers)),
            "tiles": sum(layer.tiles for layer in layers),
        },
        "torq_hl": {f"{way}_bytes": sum(nbytes[way] for nbytes in moved) for way in ("in", "out")},
        "torq_hw": {"cycles": measurement.total_cycles, **_machine_code(measurement)},
    }


def _machine_code(measurement: Measurement) -> dict[str, int]:
    counts = {"blocks": 0, "nss_bytes": 0, "program_bytes": 0, "jobs": 0, "slice_programs": 0, "slice_tasks": 0}
    for partition in measurement.model.partitions:
        program = partition.program
        counts["blocks"] += len(program.blocks)
        counts["nss_bytes"] += sum(block.size for block in program.blocks)
        counts["program_bytes"] += sum(len(s.data) for s in program.segments if s.kind == "program")
        counts["jobs"] += len(program.jobs)
        for step in trace(program):
            tasks = [len(job.tasks) for job in step.jobs if job.engine is Engine.SLICE]
            counts["slice_programs"] += len(tasks)
            counts["slice_tasks"] += sum(tasks)
    return counts
