"""Which layer and stage is to blame for what a model lacks, with the proof and the cure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torq_byoc.accuracy.deviation import Deviation, Stage
from torq_byoc.accuracy.layer_check import LayerRow
from torq_byoc.accuracy.output_check import OutputRow, worst
from torq_byoc.accuracy.remedies import CARRIES_SCALES, remedy, remedy_of_many
from torq_byoc.accuracy.stages import Stages
from torq_byoc.accuracy.verdict import is_defect
from torq_byoc.accuracy.what_if import Gain, gains, own_error
from torq_byoc.quantize.output_parts import OutputPart

Feeds = Mapping[str, np.ndarray]

TELLING = 3.0
"""Decibels that a layer in float must gain the worst output part to count as its cause."""


@dataclass(frozen=True)
class Cause:
    """The layer that is worst.

    Attributes:
        stage, node, tensor: where the error arises.
        detail: its figure, in a sentence.
        proof: what the worst output part would gain without it; empty when that was not tried.
        remedy: what to do.
    """

    stage: Stage
    node: str
    tensor: str
    detail: str
    proof: str
    remedy: str


def cause_of(
    stages: Stages,
    rows: Sequence[LayerRow],
    outputs: Sequence[OutputRow],
    deviations: Sequence[Deviation],
    parts: Sequence[OutputPart],
    samples: Sequence[tuple[Feeds, Feeds]],
) -> Cause | None:
    """The cause of the worst output part's error.

    Args:
        stages: of the model.
        rows, outputs, deviations: what the check found.
        parts: of the outputs.
        samples: feeds, and the float model's outputs for them.
    """
    kind = CARRIES_SCALES if stages.carries_scales else stages.precision
    by_tensor = {row.layer.tensor: row for row in rows}
    defects = sorted(filter(is_defect, deviations), key=lambda one: (not one.local, list(Stage).index(one.stage)))
    if defects:
        first = defects[0]
        cure = remedy(first.stage, by_tensor.get(first.tensor), kind)
        return Cause(first.stage, first.node, first.tensor, first.detail, "", cure)
    target = worst(outputs)
    if target is None or stages.carries_scales or stages.precision == "bf16":
        return _weakest(rows, kind)
    part = next(part for part in parts if (part.output, part.name) == (target.output, target.part))
    wanted = [outputs_[part.output] for _, outputs_ in samples]
    found = gains(stages.prepared, stages.precise, rows, part, [feeds for feeds, _ in samples], wanted)
    if found and found[0].after - found[0].before >= TELLING:
        return _proven(found[0], part, kind)
    return _spread(rows, found, kind)


def _proven(gain: Gain, part: OutputPart, kind: str) -> Cause:
    row = gain.row
    name = part.name if part.name == part.output else f"{part.output}/{part.name}"
    proof = f"with this layer in float, {name} would have {gain.after:.1f} dB in place of {gain.before:.1f} dB"
    return _of_row(row, proof, kind)


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
    cure = remedy(Stage.QUANTIZATION, row, kind)
    return Cause(Stage.QUANTIZATION, row.layer.node, row.layer.tensor, _figure(row), proof, cure)


def _figure(row: LayerRow) -> str:
    worst_part = min(row.parts, key=lambda part: part.local.sqnr, default=None)
    if worst_part is not None:
        return f"operand {worst_part.name} has {worst_part.local.sqnr:.1f} dB from this {row.layer.op} alone"
    return f"{row.layer.op} alone has {row.local.sqnr:.1f} dB; {row.overall.sqnr:.1f} dB end to end"
