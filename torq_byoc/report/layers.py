"""One row a layer: tiles, cycles, what bounds it, bytes, transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torq_byoc.compiled_model import Layer
from torq_byoc.npu_model.config import NpuConfig
from torq_byoc.npu_model.dtypes import DType
from torq_byoc.npu_model.isa import Engine
from torq_byoc.npu_model.timing import Event
from torq_byoc.report.measure import Measurement


def layer_rows(measurement: Measurement) -> list[dict[str, Any]]:
    """Layers of all partitions in execution order.

    ``cycles`` is the busy time of the layer's busiest engine; ``start`` and ``end`` are the first and last
    cycle of its jobs on the common time line, so overlapping layers show as such.
    """
    rows = []
    offset = 0
    for partition, timeline in measurement.parts():
        events: dict[str, list[Event]] = {}
        for event in timeline.events:
            events.setdefault(partition.program.jobs[event.job].label, []).append(event)
        for layer in partition.facts.layers:
            rows.append(_row(layer, events.get(layer.node, []), partition.program.config, offset))
        offset += timeline.total_cycles
    return rows


def _row(layer: Layer, events: Sequence[Event], config: NpuConfig, offset: int) -> dict[str, Any]:
    busy: dict[str, int] = {}
    for event in events:
        busy[event.track] = busy.get(event.track, 0) + event.end - event.start
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
        "shape": list(layer.output_shape),
        "dtype": layer.dtype,
        "tiles": layer.tiles,
        "cycles": cycles,
        "estimate": layer.estimate,
        "start": offset + min((event.start for event in events), default=0),
        "end": offset + max((event.end for event in events), default=0),
        "bound_by": max(engines, key=lambda name: engines[name]) if cycles else "none",
        "utilisation": layer.macs / (peak_macs(layer.dtype, config) * cycles) if cycles else 0.0,
        "macs": layer.macs,
        "resident": layer.resident,
        "bytes": dict(layer.bytes),
        "transfers": {
            "in": sum(event.engine is Engine.DMA_IN for event in events),
            "out": sum(event.engine is Engine.DMA_OUT for event in events),
        },
    }


def directions(nbytes: Mapping[str, int]) -> dict[str, int]:
    """A layer's bytes by direction, "in" and "out"."""
    moved = {"in": 0, "out": 0}
    for key, value in nbytes.items():
        moved[key.partition("_")[0]] += value
    return moved


def peak_macs(dtype: str, config: NpuConfig) -> int:
    """MACs a cycle of all slices for layers of a type, with weights of 8 bits (bf16 for bf16)."""
    data = DType(dtype)
    weight = DType.BF16 if data.is_float else DType.INT8
    return config.slices * config.peak_macs(data, weight)
