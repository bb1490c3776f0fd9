"""Where everything lies: regions of XRAM, and what each layer keeps in LRAM."""

from __future__ import annotations

from typing import Any

from torq_byoc.npu_model.xram import XramMap
from torq_byoc.report.lram import LramSpan
from torq_byoc.report.measure import Measurement


def memory_map(measurement: Measurement) -> list[dict[str, Any]]:
    """One entry a partition: XRAM regions, LRAM spans, and the LRAM in use over time."""
    return [
        {
            "partition": partition.facts.symbol,
            "xram": [
                {"name": region.name, "kind": region.kind, "address": region.start, "bytes": region.end - region.start}
                for region in XramMap(partition.program).regions
            ],
            "lram": [_span(span) for span in _merged(use.spans)],
            "lram_in_use": [list(point) for point in use.occupancy],
        }
        for partition, use in zip(measurement.model.partitions, measurement.lram, strict=True)
    ]


def _span(span: LramSpan) -> dict[str, Any]:
    return {"layer": span.layer, "kind": span.kind, "address": span.start, "bytes": span.end - span.start}


def _merged(spans: tuple[LramSpan, ...]) -> list[LramSpan]:
    """Spans of one layer and kind that touch or overlap, joined; in the order of first use."""
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for span in spans:
        groups.setdefault((span.layer, span.kind), []).append((span.start, span.end))
    merged = []
    for (layer, kind), ranges in groups.items():
        for start, end in _union(ranges):
            merged.append(LramSpan(layer, kind, start, end))
    return merged


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
