"""Which layer and stage is to blame for what a model lacks, with the proof and the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torq_byoc.accuracy.causes.evidence import Cause, Evidence, Feeds
from torq_byoc.accuracy.causes.given_causes import cause_as_given, cause_without_numbers, with_findings
from torq_byoc.accuracy.causes.remedies import CARRIES_SCALES, remedy, remedy_of_many
from torq_byoc.accuracy.causes.transplant import noise, removed_noise, transplants
from torq_byoc.accuracy.causes.what_if import Gain, gains, own_error
from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layers.layer_check import LayerRow
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.verdict.output_check import worst
from torq_byoc.accuracy.verdict.verdict import is_defect
from torq_byoc.quantize.output_parts import OutputPart

TELLING = 3.0
"""Decibels that a layer in float must gain the worst output part to count as its cause."""
MOST_OF = 0.5
"""Part of the worst output part's error, as energy, that must be a layer's own to count as its cause."""


def cause_of(stages: Stages, evidence: Evidence) -> Cause | None:
    """The cause of the worst output part's error; None for a model without layers."""
    if no_numbers := cause_without_numbers(evidence.lint):
        return no_numbers
    kind, rows = CARRIES_SCALES if stages.carries_scales else stages.precision, evidence.rows
    defects = sorted(
        filter(is_defect, evidence.deviations), key=lambda one: (not one.local, list(Stage).index(one.stage))
    )
    if defects:
        return with_findings(_of_defect(defects[0], rows, kind), evidence.lint)
    target = worst(evidence.outputs)
    given = cause_as_given(stages, evidence, target) if target else None
    if given:
        return given
    if target is None or stages.is_held_against_itself or stages.precision == "bf16":
        return _weakest(rows, kind)
    part = next(part for part in evidence.parts if (part.output, part.name) == (target.output, target.part))
    if stages.float_model:
        return with_findings(_beside_float_model(stages, evidence, part, target.figures.sqnr), evidence.lint)
    feeds, wanted = _samples_of(evidence, part)
    found = gains(stages.prepared, stages.precise, rows, part, feeds, wanted)
    if found and found[0].after - found[0].before >= TELLING:
        return _proven(found[0], part, kind)
    return _spread(rows, found, kind)


def _beside_float_model(stages: Stages, evidence: Evidence, part: OutputPart, now: float) -> Cause | None:
    """Of a model that carries its scales; ``now`` is the part's SQNR."""
    feeds, wanted = _samples_of(evidence, part)
    values = [evidence.values(feed) for feed in feeds]
    tried = transplants(stages.precise, evidence.rows, part, feeds, values, wanted)
    gain = next((gain for gain in tried if removed_noise(gain) >= MOST_OF * noise(now)), None)
    if gain is None:
        weakest = _weakest(evidence.rows, CARRIES_SCALES)
        return replace(weakest, proof=_many(tried, now)) if weakest and tried else weakest
    proof = (
        f"given the float model's values in front of this layer, {_name_of(part)} has {gain.before:.1f} dB;"
        f" given its result too, {gain.after:.1f} dB"
    )
    return _of_row(gain.row, proof, CARRIES_SCALES)


def _many(tried: Sequence[Gain], now: float) -> str:
    most = min(max(map(removed_noise, tried)) / noise(now), 1.0)
    return f"no single layer is to blame: the {len(tried)} worst ones have {max(most, 0.0):.0%} of the error at most"


def _samples_of(evidence: Evidence, part: OutputPart) -> tuple[list[Feeds], list[np.ndarray]]:
    feeds = [feeds for feeds, _ in evidence.samples]
    return feeds, [outputs[part.output] for _, outputs in evidence.samples]


def _of_defect(defect: Deviation, rows: Sequence[LayerRow], kind: str) -> Cause:
    row = next((row for row in rows if row.layer.tensor == defect.tensor), None)
    return Cause(defect.stage, defect.node, defect.tensor, defect.detail, "", remedy(defect.stage, row, kind))


def _proven(gain: Gain, part: OutputPart, kind: str) -> Cause:
    change = f"{_name_of(part)} would have {gain.after:.1f} dB in place of {gain.before:.1f} dB"
    return _of_row(gain.row, f"with this layer in float, {change}", kind)


def _name_of(part: OutputPart) -> str:
    return part.name if part.name == part.output else f"{part.output}/{part.name}"


def _spread(rows: Sequence[LayerRow], tried: Sequence[Gain], kind: str) -> Cause | None:
    weakest = _weakest(rows, kind)
    if weakest is None or not tried:
        return weakest
    best = tried[0]
    proof = (
        f"no single layer is to blame: the best of the {len(tried)} worst ones in float gains"
        f" {max(best.after - best.before, 0.0):.1f} dB"
    )
    return Cause(
        weakest.stage,
        weakest.node,
        weakest.tensor,
        weakest.detail,
        proof,
        remedy_of_many(rows, kind),
    )


def _weakest(rows: Sequence[LayerRow], kind: str) -> Cause | None:
    row = min(rows, key=own_error, default=None)
    return None if row is None else _of_row(row, "", kind)


def _of_row(row: LayerRow, proof: str, kind: str) -> Cause:
    stage = Stage.BF16 if kind == "bf16" else Stage.QUANTIZATION
    cure = remedy(Stage.QUANTIZATION, row, kind)
    return Cause(stage, row.layer.node, row.layer.tensor, _figure(row), proof, cure)


def _figure(row: LayerRow) -> str:
    worst_part = min(row.parts, key=lambda part: part.local.sqnr, default=None)
    if worst_part is not None:
        return f"operand {worst_part.name} has {worst_part.local.sqnr:.1f} dB from this {row.layer.op} alone"
    return f"{row.layer.op} alone has {row.local.sqnr:.1f} dB; {row.overall.sqnr:.1f} dB end to end"
