"""A check's result as plain data, for ``--json`` and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torq_byoc.accuracy.check import CheckResult
from torq_byoc.accuracy.layers.layer_check import LayerRow, PartRow
from torq_byoc.accuracy.verdict.metrics import Figures
from torq_byoc.accuracy.verdict.output_check import OutputRow


def result_data(result: CheckResult) -> dict[str, Any]:
    """The schema of docs/json-schema.md, section "check"; numbers are finite."""
    scores = result.labels
    return {
        "model": result.model,
        "precision": result.precision,
        "passed": result.passed,
        "samples": result.samples,
        "layer_samples": result.layer_samples,
        "worst_sample": result.worst_sample,
        **asdict(result.scope),
        "reference": result.reference,
        "misses": [_finite(asdict(miss)) for miss in result.misses],
        "cause": asdict(result.cause) if result.cause else None,
        "outputs": [_output(row) for row in result.outputs],
        "labels": {**asdict(scores), "top1_loss": scores.top1_loss, "top5_loss": scores.top5_loss} if scores else None,
        "metric": dict(result.metric),
        "layers": [_layer(row) for row in result.layers],
        "deviations": [asdict(deviation) for deviation in result.deviations],
        "lint": [asdict(finding) for finding in result.lint],
        "notes": list(result.notes),
    }


def _output(row: OutputRow) -> dict[str, Any]:
    return {
        "output": row.output,
        "part": row.part,
        **_figures(row.figures),
        "lost": row.lost,
        "not_numbers": row.not_numbers,
        "dead_channels": list(row.dead),
        "agreement": row.agreement,
    }


def _layer(row: LayerRow) -> dict[str, Any]:
    codes = row.layer.codes
    quantization = {"scale": codes.scale, "zero_point": codes.zero_point, "dtype": codes.dtype.name} if codes else None
    return {
        "node": row.layer.node,
        "op": row.layer.op,
        "tensor": row.layer.tensor,
        "quantization": quantization,
        "on_npu": row.on_npu,
        "float_name": row.float_name,
        "overall": _figures(row.overall),
        "local": _figures(row.local),
        "rounding": asdict(row.rounding) if row.rounding else None,
        "codes": asdict(row.use) if row.use else None,
        "dead_channels": list(row.dead),
        "worst_channel": {"channel": row.worst_channel[0], "sqnr": row.worst_channel[1]} if row.worst_channel else None,
        "agreement": row.same_best,
        "operands": [_part(part) for part in row.parts],
    }


def _part(part: PartRow) -> dict[str, Any]:
    return {
        "name": part.name,
        "overall": _figures(part.overall),
        "local": _figures(part.local),
        "dead_channels": list(part.dead),
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return _finite(asdict(figures))


def _finite(data: Mapping[str, Any]) -> dict[str, Any]:
    """Null for numbers that JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in data.items()
    }
